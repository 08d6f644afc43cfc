// Failure: what is wrong with a bundle or a call, in one line; and the parts of the standard library that all use.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace soc {

struct Failure : std::runtime_error {
  using runtime_error::runtime_error;
};

// A text of others, in quotes and printable: file names and manifests may have anything in them.
inline std::string quote(std::string text) {
  if (text.size() > 200) text = text.substr(0, 200) + "...";
  for (char& character : text) {
    if (static_cast<unsigned char>(character) < ' ' || character == 0x7f) character = '?';
  }
  return "'" + text + "'";
}

}  // namespace soc
