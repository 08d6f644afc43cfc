// Failure: what is wrong with a bundle or a call, in one line.
#pragma once

#include <stdexcept>
#include <string>

namespace soc {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A text of others, in quotes and printable: file names and manifests may have anything in them.
inline std::string quote(const std::string& text) {
  constexpr size_t kLongest = 200;
  std::string quoted = "'";
  for (unsigned char character : text.substr(0, kLongest)) {
    quoted += character < ' ' || character == 0x7f ? '?' : static_cast<char>(character);
  }
  return quoted + (text.size() > kLongest ? "...'" : "'");
}

}  // namespace soc
