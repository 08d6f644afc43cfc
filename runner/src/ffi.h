// What is used of tvm-ffi: its global functions, by way of its C interface alone.
//
// Libraries of TVM's wheels are made with another C++ library than ours may be, so that exceptions do not cross.  The
// headers turn the error that a C function returns into one of our own.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <string>

#include "failure.h"

namespace soc {

// First line of an error of TVM, which goes on with a backtrace.
inline std::string reason(const tvm::ffi::Error& error) {
  const std::string message = error.message();
  return message.substr(0, message.find('\n'));
}

template <typename Call>
auto guarded(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const tvm::ffi::Error& error) {
    throw Failure(reason(error));
  }
}

inline tvm::ffi::Function global_function(const char* name) {
  auto function = guarded([&] { return tvm::ffi::Function::GetGlobal(name); });
  if (!function) throw Failure(std::string("TVM's runtime library has no function ") + quote(name));
  return *function;
}

}  // namespace soc
