// Npy: arrays in NumPy's files, of the format that numpy.lib.format describes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace soc {

struct Array {
  std::string dtype;  // as NumPy calls it
  std::vector<int64_t> shape;
  std::string content;
};

Array read_npy(const std::string& path);
void write_npy(const std::string& path, const Array& array);

}  // namespace soc
