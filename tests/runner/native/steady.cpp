// Streams frames of zeros one by one, and prints the runner's allocations while the bundle is opened, and afterwards.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "soc_pipeline.h"

int main(int, char** words) {
  const auto count = reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "count_allocations"));
  if (count == nullptr || count() == ~0ul) return 2;
  soc_pipeline* pipeline = soc_open(words[1], nullptr);
  if (pipeline == nullptr) return std::fprintf(stderr, "%s\n", soc_error()), 1;
  size_t inputs = 0;
  const soc_tensor* specs = soc_inputs(pipeline, &inputs);
  std::vector<std::vector<char>> contents;
  std::vector<soc_tensor> tensors(specs, specs + inputs);
  for (soc_tensor& tensor : tensors) tensor.data = contents.emplace_back(tensor.nbytes).data();
  const unsigned long opening = count();
  soc_result result;
  for (int frame = 0; frame < 1000; ++frame) {
    if (soc_submit(pipeline, tensors.data(), inputs, -1, nullptr) != SOC_OK) return 1;
    const soc_status status = soc_next(pipeline, &result, -1);
    if (status != SOC_OK && status != SOC_FAILED) return 1;
    soc_release(pipeline, &result);
  }
  std::printf("%lu %lu\n", opening, count() - opening);
  soc_close(pipeline, nullptr);
  return 0;
}
