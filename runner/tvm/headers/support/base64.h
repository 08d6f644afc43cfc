// Tensors in the JSON of models, which nobody reads or writes where bundles are run.
#pragma once

#include <tvm/ffi/error.h>

#include "bytes_io.h"

namespace tvm {
namespace support {

struct Base64OutStream : BytesOutStream {
  explicit Base64OutStream(Stream*) : BytesOutStream(nullptr) { Finish(); }
  void Finish() { TVM_FFI_THROW(RuntimeError) << "this runtime writes no tensors as text"; }
};

struct Base64InStream : BytesInStream {
  explicit Base64InStream(Stream*) : BytesInStream(std::string()) {}
  void InitPosition() { TVM_FFI_THROW(RuntimeError) << "this runtime reads no tensors from text"; }
};

}  // namespace support
}  // namespace tvm
