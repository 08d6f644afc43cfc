// What is used of tvm-ffi: its global functions, by way of its C interface alone.
//
// Libraries of TVM's wheels are made with another C++ library than ours may be, so that exceptions do not cross.  The
// headers turn the error that a C function returns into one of our own.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include "failure.h"

namespace soc {

namespace ffi = tvm::ffi;

template <typename Call>
auto guarded(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const ffi::Error& error) {
    const std::string message = error.message();
    // A backtrace follows.
    throw Failure(message.substr(0, message.find('\n')));
  }
}

inline ffi::Function global_function(const char* name) {
  const auto function = guarded([&] { return ffi::Function::GetGlobal(name); });
  if (!function) throw Failure(std::string("TVM's runtime library has no function ") + quote(name));
  return *function;
}

}  // namespace soc
