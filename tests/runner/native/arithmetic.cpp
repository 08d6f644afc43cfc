// Kernel of tests/support/arithmetic_bundles.py: adds up its inputs, and is slow or fails on some frames.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <chrono>
#include <thread>

namespace {

namespace ffi = tvm::ffi;
constexpr int64_t kModulus = 100'003;

const int64_t* content(ffi::AnyView argument) {
  return static_cast<const int64_t*>(argument.cast<ffi::TensorView>().data_ptr());
}

// Inputs of (frame, value), the code (factor, kinds that are slow, kinds that fail), and the output.
void compute(ffi::PackedArgs arguments, ffi::Any*) {
  const int count = arguments.size() - 2;
  const int64_t *code = content(arguments[count]), frame = content(arguments[0])[0];
  int64_t sum = 0;
  for (int place = 0; place < count; ++place) {
    if (content(arguments[place])[0] != frame) TVM_FFI_THROW(RuntimeError) << "frames were mixed";
    sum += content(arguments[place])[1];
  }
  const int64_t kind = frame & 15;
  if (code[1] >> kind & 1) std::this_thread::sleep_for(std::chrono::microseconds(500));
  if (code[2] >> kind & 1) TVM_FFI_THROW(ValueError) << "now and then";
  int64_t* output = const_cast<int64_t*>(content(arguments[count + 1]));
  output[0] = frame;
  output[1] = sum * code[0] % kModulus;
}

// As kernels are called: exceptions of this library's C++ must not get into TVM's.
int call(void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {
  TVM_FFI_SAFE_CALL_BEGIN();
  compute(ffi::PackedArgs(reinterpret_cast<const ffi::AnyView*>(arguments), count), reinterpret_cast<ffi::Any*>(result));
  TVM_FFI_SAFE_CALL_END();
}

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::Function::SetGlobal("soc_test.arithmetic", ffi::Function::FromExternC(nullptr, call, nullptr));
}

}  // namespace
