#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace tvm {
namespace support {

inline bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char digit) { return std::isdigit(digit); });
}

}  // namespace support
}  // namespace tvm
