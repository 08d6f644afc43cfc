// Bundle: a folder's files, verified, and its stages' code brought into this process.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include "ffi.h"
#include "manifest.h"

namespace soc {

// Tensor in memory of its own that begins where kernels may rely on it.
ffi::Tensor make_tensor(const TensorSpec& spec);

// A module and its parameters; threads that run it share both.
struct StageCode {
  std::string processor;
  ffi::Any module;
  std::vector<ffi::Tensor> parameters;
};

struct Bundle {
  Manifest manifest;
  std::vector<std::vector<StageCode>> codes;  // of each stage, first that for all kinds of cores
};

// Verifies and loads the bundle in a folder; throws Failure with what is wrong.
Bundle load_bundle(const std::string& folder);

// Entry point of a stage, for one thread at a time.
ffi::Function make_entry(const StageCode& code);

}  // namespace soc
