// soc-run: streams arrays through a bundle, or measures it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "npy.h"
#include "soc_pipeline.h"

namespace {

using soc::Failure;
using Clock = std::chrono::steady_clock;

constexpr char kHelp[] =
    R"(usage: soc-run BUNDLE [--input FILE.npy]... [--output FILE.npy]... [--bench N] [--in-flight N] [--latest]

Stream arrays through a bundle of soc-pipeline.

  --input FILE    an array for an input of the bundle, in its order: one frame, or several along one more axis before
                  the others; zeros for inputs without a file
  --output FILE   where to write an output of the bundle, in its order
  --bench N       stream so many frames, and print what it took as JSON
  --in-flight N   frames inside at once (default: the plan's)
  --latest        drop frames that find no room, instead of waiting

example: soc-run digits.bundle --input digits.npy --output logits.npy
)";

struct Options {
  std::string bundle;
  std::vector<std::string> inputs, outputs;
  uint64_t bench = 0;
  soc_options pipeline{};
};

// An input's frames, one behind the other.
struct Frames {
  soc::Array array;
  uint64_t count = 1;
};

class WrongUse : public Failure {
 public:
  using Failure::Failure;
};

Options read_options(int count, char** words) {
  Options options;
  for (int place = 1; place < count; ++place) {
    const std::string word = words[place];
    const auto value = [&]() -> std::string {
      if (++place >= count) throw WrongUse(word + " needs a value");
      return words[place];
    };
    const auto number = [&](uint64_t most) {
      const std::string text = value();
      const bool is_number = !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == text.npos;
      if (!is_number || std::stoull(text) < 1 || std::stoull(text) > most) {
        throw WrongUse(word + " is " + soc::quote(text) + "; it must be from 1 to " + std::to_string(most));
      }
      return std::stoull(text);
    };
    if (word == "--help" || word == "-h") std::cout << kHelp, std::exit(0);
    else if (word == "--input") options.inputs.push_back(value());
    else if (word == "--output") options.outputs.push_back(value());
    else if (word == "--bench") options.bench = number(100'000'000);
    else if (word == "--in-flight") options.pipeline.in_flight = static_cast<uint32_t>(number(1 << 20));
    else if (word == "--latest") options.pipeline.admission = SOC_LATEST;
    else if (word[0] == '-' || !options.bundle.empty()) throw WrongUse("there is no option " + soc::quote(word));
    else options.bundle = word;
  }
  if (options.bundle.empty()) throw WrongUse("which bundle?");
  return options;
}

Frames read_frames(const soc_tensor& spec, const std::string* path) {
  const std::vector<int64_t> shape(spec.shape, spec.shape + spec.axes);
  if (path == nullptr) return {{spec.dtype, shape, std::string(spec.nbytes, '\0')}};
  Frames frames{soc::read_npy(*path)};
  soc::Array& array = frames.array;
  if (array.shape.size() == shape.size() + 1) {
    frames.count = static_cast<uint64_t>(array.shape[0]);
    array.shape.erase(array.shape.begin());
  }
  if (array.dtype != spec.dtype || array.shape != shape || frames.count == 0) {
    std::string expected = std::string(spec.dtype) + "[";
    for (const int64_t extent : shape) expected += (expected.back() == '[' ? "" : ", ") + std::to_string(extent);
    throw Failure(soc::quote(*path) + " is " + array.dtype + " of another shape or dtype than " + expected +
                  "], or several of these, which the input " + soc::quote(spec.name) + " takes");
  }
  return frames;
}

// Most memory that was resident; getrusage would count that of whoever started this program as well.
double peak_mb() {
  std::ifstream stream("/proc/self/status");
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::strtod(line.c_str() + 6, nullptr) * 1024e-6;
  }
  return 0;
}

using PipelinePointer = std::unique_ptr<soc_pipeline, void (*)(soc_pipeline*)>;

class Run {
 public:
  explicit Run(const Options& options)
      : options_(options),
        begin_(Clock::now()),
        pipeline_(soc_open(options.bundle.c_str(), &options.pipeline), [](auto* p) { soc_close(p, nullptr); }) {
    if (!pipeline_) throw Failure(soc_error());
    inputs_ = soc_inputs(pipeline_.get(), &input_count_);
    outputs_ = soc_outputs(pipeline_.get(), &output_count_);
    if (options.inputs.size() > input_count_) throw WrongUse("the bundle has fewer inputs than there are --input");
    if (options.outputs.size() > output_count_) throw WrongUse("the bundle has fewer outputs than there are --output");
    frame_count_ = options.bench;
    for (size_t place = 0; place < input_count_; ++place) {
      frames_.push_back(read_frames(inputs_[place], place < options.inputs.size() ? &options.inputs[place] : nullptr));
      if (options.bench == 0) frame_count_ = std::max(frame_count_, frames_.back().count);
    }
    written_.resize(options.outputs.size());
  }

  // Returns whether all frames were delivered.
  bool stream() {
    std::string problem;
    std::thread reader([&] { read_results(&problem); });
    std::vector<soc_tensor> tensors(input_count_);
    for (uint64_t number = 0; number < frame_count_; ++number) {
      for (size_t place = 0; place < input_count_; ++place) {
        tensors[place] = inputs_[place];
        tensors[place].data = frames_[place].array.content.data() + number % frames_[place].count * inputs_[place].nbytes;
      }
      if (soc_submit(pipeline_.get(), tensors.data(), input_count_, -1, nullptr) != SOC_OK) problem = soc_error();
    }
    soc_finish(pipeline_.get());
    reader.join();
    if (!problem.empty()) std::cerr << "error: " << problem << "\n";
    return problem.empty();
  }

  void write_outputs() const {
    for (size_t place = 0; place < written_.size(); ++place) {
      const soc_tensor& spec = outputs_[place];
      std::vector<int64_t> shape(spec.shape, spec.shape + spec.axes);
      const auto count = static_cast<int64_t>(spec.nbytes ? written_[place].size() / spec.nbytes : delivered_);
      if (frame_count_ > 1) shape.insert(shape.begin(), count);
      soc::write_npy(options_.outputs[place], {spec.dtype, shape, written_[place]});
    }
  }

  void print_bench() const {
    soc_statistics books;
    soc_get_statistics(pipeline_.get(), &books);
    const double rate = books.elapsed_s > 0 ? static_cast<double>(books.delivered) / books.elapsed_s : 0;
    std::printf(
        "{\"submitted\": %llu, \"delivered\": %llu, \"dropped\": %llu, \"failed\": %llu, \"first_result_ms\": %.3f, "
        "\"frames_per_s\": %.1f, \"peak_mb\": %.1f}\n",
        static_cast<unsigned long long>(books.submitted), static_cast<unsigned long long>(books.delivered),
        static_cast<unsigned long long>(books.dropped), static_cast<unsigned long long>(books.failed),
        first_result_s_ * 1e3, rate, peak_mb());
  }

 private:
  void read_results(std::string* problem) {
    soc_result result;
    for (soc_status status; (status = soc_next(pipeline_.get(), &result, -1)) != SOC_END;) {
      if (first_result_s_ == 0) first_result_s_ = std::chrono::duration<double>(Clock::now() - begin_).count();
      if (status == SOC_FAILED && problem->empty()) {
        *problem = "frame " + std::to_string(result.frame) + " failed in " + result.stage + ": " + result.reason;
      }
      for (size_t place = 0; status == SOC_OK && place < written_.size(); ++place) {
        const soc_tensor& output = result.outputs[place];
        written_[place].append(static_cast<const char*>(output.data), output.nbytes);
      }
      delivered_ += status == SOC_OK;
      soc_release(pipeline_.get(), &result);
    }
  }

  const Options& options_;
  const Clock::time_point begin_;
  PipelinePointer pipeline_;
  const soc_tensor *inputs_, *outputs_;
  size_t input_count_, output_count_;
  std::vector<Frames> frames_;
  std::vector<std::string> written_;
  uint64_t frame_count_, delivered_ = 0;
  double first_result_s_ = 0;
};

}  // namespace

int main(int count, char** words) {
  try {
    const Options options = read_options(count, words);
    Run run(options);
    const bool is_complete = run.stream();
    run.write_outputs();
    if (options.bench > 0) run.print_bench();
    return is_complete ? 0 : 1;
  } catch (const WrongUse& error) {
    std::cerr << "error: " << error.what() << "; soc-run --help says more\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
