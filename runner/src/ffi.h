// What is used of tvm-ffi: its global functions, by way of its C interface alone.
//
// Libraries of TVM's wheels are made with another C++ library than ours may be, so that exceptions must not cross.
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

// Calls a function of TVM's.  Its own operator would call it as C++, which throws.
template <typename... Arguments>
ffi::Any call(const ffi::Function& function, Arguments&&... arguments) {
  constexpr int count = sizeof...(Arguments);
  ffi::AnyView packed[count + 1];
  ffi::PackedArgs::Fill(packed, std::forward<Arguments>(arguments)...);
  TVMFFIAny raw{};
  const auto handle = ffi::details::ObjectUnsafe::RawObjectPtrFromObjectRef(function);
  if (TVMFFIFunctionCall(handle, reinterpret_cast<TVMFFIAny*>(packed), count, &raw) != 0) {
    return guarded([]() -> ffi::Any { throw ffi::details::MoveFromSafeCallRaised(); });
  }
  return ffi::details::AnyUnsafe::MoveTVMFFIAnyToAny(&raw);
}

inline ffi::Function global_function(const char* name) {
  const auto function = guarded([&] { return ffi::Function::GetGlobal(name); });
  if (!function) throw Failure(std::string("TVM's runtime library has no function ") + quote(name));
  return *function;
}

}  // namespace soc
