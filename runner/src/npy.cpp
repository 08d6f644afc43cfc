#include "npy.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>

#include "failure.h"

namespace soc {
namespace {

// NumPy's codes; all machines that this runs on have little ends first.
struct Code {
  const char *code, *dtype;
  int64_t nbytes;
};
constexpr Code kCodes[] = {{"|b1", "bool", 1},   {"|i1", "int8", 1},   {"<i2", "int16", 2},   {"<i4", "int32", 4},
                           {"<i8", "int64", 8},  {"|u1", "uint8", 1},  {"<u2", "uint16", 2},  {"<u4", "uint32", 4},
                           {"<u8", "uint64", 8}, {"<f2", "float16", 2}, {"<f4", "float32", 4}, {"<f8", "float64", 8}};
constexpr char kMagic[] = "\x93NUMPY";

}  // namespace

Array read_npy(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Failure(quote(path) + " cannot be opened: " + std::strerror(errno));
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  const auto refuse = [&](const char* problem) -> Failure { return Failure(quote(path) + " " + problem); };
  if (file.size() < 12 || file.compare(0, 6, kMagic) != 0) throw refuse("is no .npy file");
  const auto byte = [&](size_t place) { return static_cast<size_t>(static_cast<unsigned char>(file[place])); };
  const bool is_first = file[6] == 1;
  const size_t start = is_first ? 10 : 12;
  const size_t length = byte(8) | byte(9) << 8 | (is_first ? 0 : byte(10) << 16 | byte(11) << 24);
  if (length > file.size() - start) throw refuse("ends inside of its header");
  const std::string header = file.substr(start, length);
  std::smatch code, order, extents;
  if (!std::regex_search(header, code, std::regex("'descr': *'([^']*)'")) ||
      !std::regex_search(header, order, std::regex("'fortran_order': *(True|False)")) ||
      !std::regex_search(header, extents, std::regex("'shape': *\\(([0-9, ]{0,400})\\)"))) {
    throw refuse("has a header that this runner does not know");
  }
  if (order[1] == "True") throw refuse("has its axes in Fortran's order; save numpy.ascontiguousarray of it");
  Array array;
  int64_t nbytes = 0;
  for (const Code& known : kCodes) {
    if (code[1] == known.code) array.dtype = known.dtype, nbytes = known.nbytes;
  }
  if (nbytes == 0) throw refuse("has a dtype that this runner does not know");
  const std::string list = extents[1];
  const std::regex digits("[0-9]{1,18}");
  for (std::sregex_iterator item(list.begin(), list.end(), digits), end; item != end; ++item) {
    array.shape.push_back(std::stoll(item->str()));
    if (__builtin_mul_overflow(nbytes, array.shape.back(), &nbytes)) throw refuse("has a shape without end");
  }
  array.content = file.substr(start + length);
  if (array.content.size() != static_cast<uint64_t>(nbytes)) throw refuse("has another size than its header says");
  return array;
}

void write_npy(const std::string& path, const Array& array) {
  std::string code, shape;
  for (const Code& known : kCodes) {
    if (array.dtype == known.dtype) code = known.code;
  }
  for (const int64_t extent : array.shape) shape += std::to_string(extent) + ",";
  std::string header = "{'descr': '" + code + "', 'fortran_order': False, 'shape': (" + shape + "), }";
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
