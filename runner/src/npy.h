// Npy: arrays in NumPy's files, of the format that numpy.lib.format describes.
#pragma once

#include <regex>

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
  return (nbytes == 1 ? "|" : "<") + dtype.substr(0, 1) + std::to_string(nbytes);
}

inline Array read_npy(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Failure(quote(path) + " cannot be opened: " + std::strerror(errno));
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  const auto check = [&](bool holds, const char* problem) {
    if (!holds) throw Failure(quote(path) + " " + problem);
  };
  check(file.size() >= 12 && file.compare(0, 6, kMagic) == 0, "is no .npy file");
  const auto byte = [&](size_t place) { return static_cast<size_t>(static_cast<unsigned char>(file[place])); };
  const bool is_first = file[6] == 1;
  const size_t start = is_first ? 10 : 12;
  const size_t length = byte(8) | byte(9) << 8 | (is_first ? 0 : byte(10) << 16 | byte(11) << 24);
  check(length <= file.size() - start, "ends inside of its header");
  const std::string header = file.substr(start, length);
  std::smatch parts;
  const std::regex form(" *\\{'descr': *'([^']*)', *'fortran_order': *(True|False), *'shape': *\\(([0-9, ]{0,400})\\).*\n?");
  check(std::regex_match(header, parts, form), "has a header that this runner does not know");
  check(parts[2] == "False", "has its axes in Fortran's order; save numpy.ascontiguousarray of it");
  Array array{"", {}, file.substr(start + length)};
  size_t nbytes = 0;
  for (const auto& [dtype, item_bytes] : kItemBytes) {
    if (parts[1] == npy_code(dtype, item_bytes)) array.dtype = dtype, nbytes = item_bytes;
  }
  check(nbytes > 0, "has a dtype that this runner does not know");
  std::istringstream extents(parts[3]);
  for (int64_t extent; extents >> extent; extents.ignore()) {
    array.shape.push_back(extent);
    check(!__builtin_mul_overflow(nbytes, extent, &nbytes), "has a shape without end");
  }
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
