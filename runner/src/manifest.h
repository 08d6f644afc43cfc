// Manifest: what a bundle says of itself, read from manifest.json and checked; docs/bundle.md specifies it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace soc {

class Json;

// Name, shape and dtype of a tensor.
struct TensorSpec {
  std::string name, dtype;
  std::vector<int64_t> shape;
  size_t nbytes = 0;
};

struct BundleFile {
  std::string file, sha256;
  int64_t nbytes = 0;
};

// Place of one array in a file of parameters.
struct ParameterEntry {
  TensorSpec array;
  size_t offset = 0;
};

// A stage's files, and what its code needs to run.
struct StageFiles {
  BundleFile library, parameters;
  std::vector<ParameterEntry> entries;
  std::string machine;
  std::vector<std::string> features;
};

// A stage: where it runs, and what it reads and makes, as numbers of the plan's tensors.
struct StagePlan {
  std::string name, device;
  std::vector<size_t> inputs, outputs;
  std::vector<int> cores;
  size_t queue_depth = 0, replicas = 0, frames_at_work = 0;
  StageFiles files;
};

struct Manifest {
  std::string tvm;
  std::vector<TensorSpec> tensors;
  std::vector<size_t> inputs, outputs;
  std::vector<StagePlan> stages;
  size_t in_flight = 0;
};

// Checks the whole document; throws Failure with the place that is wrong, or the stage that this runner cannot run.
Manifest read_manifest(const std::string& document);

}  // namespace soc
