// Npy: arrays in NumPy's files, of the format that numpy.lib.format describes.
#pragma once

#include <charconv>
#include <string_view>

#include "manifest.h"

namespace soc {

struct Array {
  std::string dtype;  // as NumPy calls it
  std::vector<int64_t> shape;
  std::string content;
};

inline constexpr char kMagic[] = "\x93NUMPY";

// NumPy's code of a dtype; all machines that this runs on have little ends first.
inline std::string npy_code(const std::string& dtype, size_t nbytes) {
  return std::string(nbytes == 1 ? "|" : "<").append(dtype, 0, 1).append(std::to_string(nbytes));
}

// The dictionary at the start of a file, read from left to right; no place in it is looked at twice.
class NpyHeader {
 public:
  explicit NpyHeader(std::string_view text) : rest_(text) {}

  // Returns whether this is a dictionary of NumPy's three keys.
  bool parse() {
    bool holds = take("{");
    while (holds && !take("}")) {
      const std::string_view key = text();
      holds = take(":") && (key == "descr"           ? !(descr = text()).empty()
                            : key == "fortran_order" ? truth()
                                                     : key == "shape" && extents());
      static_cast<void>(take(","));
    }
    return holds && !descr.empty() && has_order_ && has_shape_;
  }

  std::string_view descr;
  bool is_fortran = false;
  std::vector<int64_t> shape;

 private:
  bool take(std::string_view word) {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  // Text in quotes; empty if there is none.
  std::string_view text() {
    const size_t end = take("'") ? rest_.find('\'') : rest_.npos;
    if (end == rest_.npos) return {};
    const std::string_view content = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return content;
  }

  bool truth() { return has_order_ = (is_fortran = take("True")) || take("False"); }

  bool extents() {
    shape.clear();
    if (!take("(")) return false;
    while (!take(")")) {
      int64_t extent = 0;
      static_cast<void>(take(""));  // spaces
      const auto [end, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (problem != std::errc() || extent < 0) return false;
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      shape.push_back(extent);
      if (!take(",") && rest_.substr(0, 1) != ")") return false;
    }
    return has_shape_ = true;
  }

  std::string_view rest_;
  bool has_order_ = false, has_shape_ = false;
};

inline Array read_npy(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Failure(quote(path) + " cannot be opened: " + std::strerror(errno));
  std::string file{std::istreambuf_iterator<char>(stream), {}};
  const auto check = [&](bool holds, const char* problem) {
    if (!holds) throw Failure(quote(path) + " " + problem);
  };
  check(file.size() >= 12 && file.compare(0, 6, kMagic) == 0, "is no .npy file");
  const auto byte = [&](size_t place) { return static_cast<size_t>(static_cast<unsigned char>(file[place])); };
  const bool is_first = file[6] == 1;
  const size_t start = is_first ? 10 : 12;
  const size_t length = byte(8) | byte(9) << 8 | (is_first ? 0 : byte(10) << 16 | byte(11) << 24);
  check(length <= file.size() - start, "ends inside of its header");
  NpyHeader header(std::string_view(file).substr(start, length));
  check(header.parse(), "has a header that this runner does not know");
  check(!header.is_fortran, "has its axes in Fortran's order; save numpy.ascontiguousarray of it");
  Array array{"", header.shape, ""};
  size_t nbytes = 0;
  for (const auto& [dtype, item_bytes] : kItemBytes) {
    if (header.descr == npy_code(dtype, item_bytes)) array.dtype = dtype, nbytes = item_bytes;
  }
  check(nbytes > 0, "has a dtype that this runner does not know");
  for (const int64_t extent : array.shape) {
    check(!__builtin_mul_overflow(nbytes, extent, &nbytes), "has a shape without end");
  }
  array.content = std::move(file.erase(0, start + length));
  check(array.content.size() == nbytes, "has another size than its header says");
  return array;
}

inline void write_npy(const std::string& path, const Array& array) {
  std::string shape;
  for (const int64_t extent : array.shape) shape += std::to_string(extent) + ",";
  std::string header = "{'descr': '" + npy_code(array.dtype, kItemBytes.at(array.dtype)) +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  // With a line's end, at a multiple of 64 bytes.
  header.resize((10 + header.size() + 64) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  std::ofstream stream(path, std::ios::binary);
  stream.write(kMagic, 6).put(1).put(0);
  stream.put(static_cast<char>(header.size() & 255)).put(static_cast<char>(header.size() >> 8));
  stream << header << array.content;
  if (!stream.flush()) throw Failure(quote(path) + " cannot be written: " + std::strerror(errno));
}

}  // namespace soc
