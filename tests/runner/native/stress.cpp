// Streams frames through a bundle of tests/support/arithmetic_bundles.py, cancels some, and keeps books of its own.
//
// stress BUNDLE FRAMES ADMISSION FACTOR FAILING: the product of the stages' factors, and the kinds of frames that fail.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "soc_pipeline.h"

namespace {

constexpr int64_t kModulus = 100'003;

[[noreturn]] void stop(const std::string& problem) {
  std::fprintf(stderr, "%s\n", problem.c_str());
  std::exit(1);
}

bool is_balanced(const soc_statistics& books) {
  return books.submitted == books.delivered + books.dropped + books.failed + books.cancelled + books.in_flight;
}

}  // namespace

int main(int, char** words) {
  const uint64_t count = std::strtoull(words[2], nullptr, 10);
  const bool drops = std::strcmp(words[3], "latest") == 0;
  const int64_t factor = std::atoll(words[4]), failing = std::atoll(words[5]);
  soc_options options{};
  options.admission = drops ? SOC_LATEST : SOC_BLOCK;
  soc_pipeline* pipeline = soc_open(words[1], &options);
  if (pipeline == nullptr) stop(soc_error());

  std::atomic<uint64_t> cancelled{0};
  std::thread writer([&] {
    for (uint64_t number = 0; number < count; ++number) {
      const int64_t frame[2] = {static_cast<int64_t>(number), static_cast<int64_t>(number % 1000)};
      soc_tensor input{};
      input.data = frame, input.nbytes = sizeof frame;
      uint64_t given = 0;
      if (soc_submit(pipeline, &input, 1, -1, &given) != SOC_OK) stop(soc_error());
      if (given != number) stop("a wrong number");
      if (number % 97 == 0) cancelled += static_cast<uint64_t>(soc_cancel(pipeline, number));
      // Else nearly all would be dropped before a stage looks.
      if (drops && number % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
      if (number % 1021 == 0) {
        soc_statistics books;
        soc_get_statistics(pipeline, &books);
        if (!is_balanced(books)) stop("the books do not balance on the way");
      }
    }
    soc_finish(pipeline);
  });

  uint64_t delivered = 0, failed = 0, expected = 0;
  soc_result result;
  for (soc_status status; (status = soc_next(pipeline, &result, -1)) != SOC_END;) {
    if (result.frame < expected) stop("out of order");
    expected = result.frame + 1;
    const bool fails = failing >> (result.frame & 15) & 1;
    if (status == SOC_OK) {
      const auto* output = static_cast<const int64_t*>(result.outputs[0].data);
      const auto number = static_cast<int64_t>(result.frame);
      if (fails || output[0] != number || output[1] != number % 1000 * factor % kModulus) stop("a wrong result");
      ++delivered;
    } else if (status == SOC_FAILED) {
      if (!fails || std::strstr(result.reason, "now and then") == nullptr) stop("a wrong failure");
      ++failed;
    } else {
      stop(soc_error());
    }
    soc_release(pipeline, &result);
  }
  writer.join();
  soc_statistics books;
  soc_close(pipeline, &books);
  if (!is_balanced(books) || books.in_flight != 0 || books.submitted != count) stop("the books do not balance");
  if (books.delivered != delivered || books.failed != failed || books.cancelled != cancelled) stop("other books");
  if (!drops && books.dropped != 0) stop("frames were dropped");
  std::printf("%llu %llu %llu %llu\n", static_cast<unsigned long long>(books.delivered),
              static_cast<unsigned long long>(books.dropped), static_cast<unsigned long long>(books.failed),
              static_cast<unsigned long long>(books.cancelled));
  return 0;
}
