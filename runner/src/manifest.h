// Manifest: what a bundle says of itself, read from manifest.json and checked; docs/bundle.md specifies it.
#pragma once

#include "failure.h"

namespace soc {

// What tensors are made of, as NumPy calls it, and its bytes.
inline const std::map<std::string, size_t> kItemBytes = {
    {"bool", 1},   {"int8", 1},   {"int16", 2},  {"int32", 4},   {"int64", 8},   {"uint8", 1},
    {"uint16", 2}, {"uint32", 4}, {"uint64", 8}, {"float16", 2}, {"float32", 4}, {"float64", 8}};

// Name, shape and dtype of a tensor; of a parameter also its place in the file.
struct TensorSpec {
  std::string name, dtype;
  std::vector<int64_t> shape;
  size_t nbytes = 0, offset = 0;
};

struct BundleFile {
  std::string file, sha256;
  size_t nbytes = 0;
};

// A stage's files, and what its code needs to run; variants are the same stage for other kinds of cores.
struct StageFiles {
  BundleFile library, parameters;
  std::vector<TensorSpec> entries;
  std::string machine, processor;
  std::vector<std::string> features;
  std::vector<StageFiles> variants;
};

// A stage: where it runs, and what it reads and makes, as numbers of the plan's tensors.
struct StagePlan {
  std::string name, device;
  std::vector<size_t> inputs, outputs;
  std::vector<int64_t> cores;
  size_t queue_depth = 0, replicas = 0, frames_at_work = 0;
  StageFiles files;
};

struct Manifest {
  std::string tvm;
  std::vector<TensorSpec> tensors;
  std::vector<size_t> inputs, outputs;
  std::vector<StagePlan> stages;
  size_t in_flight = 0;
  std::map<int64_t, std::string> processors;  // of cores, as LLVM calls them, where the plan says so
};

// Checks the whole document; throws Failure with the place that is wrong, or the stage that this runner cannot run.
Manifest read_manifest(const std::string& document);

}  // namespace soc
