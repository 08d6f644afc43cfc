// Bundle: a folder's files, verified, and its stages' code brought into this process.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <memory>
#include <string>
#include <vector>

#include "manifest.h"

namespace soc {

// Tensor in memory of its own that begins where kernels may rely on it.
tvm::ffi::Tensor make_tensor(const TensorSpec& spec);

// A stage's module and parameters; its replicas share both.
struct StageCode {
  tvm::ffi::Any module;
  std::vector<tvm::ffi::Tensor> parameters;
};

struct Bundle {
  Manifest manifest;
  std::vector<StageCode> codes;
};

// Verifies and loads the bundle in a folder; throws Failure with what is wrong.
Bundle load_bundle(const std::string& folder);

// Entry point of a stage, for one thread at a time.
tvm::ffi::Function make_entry(const StageCode& code);

}  // namespace soc
