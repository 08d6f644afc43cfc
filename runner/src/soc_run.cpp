// soc-run: streams arrays through a bundle, or measures it.
#include <charconv>
#include <chrono>
#include <iostream>
#include <thread>

#include "npy.h"
#include "soc_pipeline.h"

namespace {

using soc::Failure;
using Clock = std::chrono::steady_clock;

constexpr char kHelp[] =
    R"(usage: soc-run BUNDLE [--input FILE.npy]... [--output FILE.npy]... [--numbers FILE.npy]
               [--bench N] [--in-flight N] [--latest]

Stream arrays through a bundle of soc-pipeline.

  --input FILE    an array for an input of the bundle, in its order: one frame, the same each time, or several along one
                  more axis before the others, as many as of the other inputs; zeros for inputs without a file
  --output FILE   where to write an output of the bundle, in its order: a row for each frame that was delivered
  --numbers FILE  where to write the number of each row's frame, counted from 0: rows of frames that failed or were
                  dropped are missing
  --bench N       stream so many frames, and print what it took as JSON
  --in-flight N   frames inside at once (default: the plan's)
  --latest        drop frames that find no room, instead of waiting
  --version       print TVM's version and the processors that this program runs on

example: soc-run digits.bundle --input digits.npy --output logits.npy
)";

constexpr char kVersion[] = "soc-run with TVM " SOC_TVM_VERSION ", for " SOC_CORES "\n";

struct Options {
  std::string bundle, numbers;
  std::vector<std::string> inputs, outputs;
  uint64_t bench = 0;
  soc_options pipeline{};
};

struct WrongUse : Failure {
  explicit WrongUse(const std::string& problem) : Failure(problem + "; soc-run --help says more") {}
};

Options read_options(const std::vector<std::string>& words) {
  Options options;
  for (auto word = words.begin(); word != words.end(); ++word) {
    const std::string name = *word;
    const auto value = [&]() -> const std::string& {
      if (++word == words.end()) throw WrongUse(name + " needs a value");
      return *word;
    };
    const auto number = [&](uint64_t most) {
      const std::string& text = value();
      uint64_t count = 0;
      const char* const end = std::from_chars(text.data(), text.data() + text.size(), count).ptr;
      if (end == text.data() + text.size() && count >= 1 && count <= most) return count;
      throw WrongUse(name + " is " + soc::quote(text) + "; it must be from 1 to " + std::to_string(most));
    };
    if (name == "--help" || name == "-h") std::cout << kHelp, std::exit(0);
    else if (name == "--version") std::cout << kVersion, std::exit(0);
    else if (name == "--input") options.inputs.push_back(value());
    else if (name == "--output") options.outputs.push_back(value());
    else if (name == "--numbers") options.numbers = value();
    else if (name == "--bench") options.bench = number(100'000'000);
    else if (name == "--in-flight") options.pipeline.in_flight = static_cast<uint32_t>(number(1 << 20));
    else if (name == "--latest") options.pipeline.admission = SOC_LATEST;
    else if (name[0] == '-' || !options.bundle.empty()) throw WrongUse("there is no option " + soc::quote(name));
    else options.bundle = name;
  }
  if (options.bundle.empty()) throw WrongUse("which bundle?");
  return options;
}

// The frames of an input, along one more axis before the others, and how many the file says there are; 0 without the axis.
struct InputFrames {
  soc::Array array;
  int64_t count = 0;
};

InputFrames read_frames(const soc_tensor& spec, const std::string* path) {
  std::vector<int64_t> shape(spec.shape, spec.shape + spec.axes);
  soc::Array array = path ? soc::read_npy(*path) : soc::Array{spec.dtype, shape, std::string(spec.nbytes, '\0')};
  const bool is_one = array.shape.size() == shape.size();
  if (is_one) array.shape.insert(array.shape.begin(), 1);
  shape.insert(shape.begin(), array.shape.empty() ? 0 : array.shape[0]);
  if (array.dtype == spec.dtype && array.shape == shape && shape[0] > 0) return {std::move(array), is_one ? 0 : shape[0]};
  std::string expected = std::string(spec.dtype) + "[";
  for (size_t axis = 0; axis < spec.axes; ++axis) expected += (axis ? ", " : "") + std::to_string(spec.shape[axis]);
  throw Failure(soc::quote(*path) + " is " + array.dtype + " of another shape or dtype than " + expected +
                "], or several of these, which the input " + soc::quote(spec.name) + " takes");
}

// Most memory that was resident; getrusage would count that of whoever started this program as well.
double peak_mb() {
  std::ifstream stream("/proc/self/status");
  std::string line;
  while (std::getline(stream, line) && line.rfind("VmHWM:", 0) != 0) continue;
  return line.empty() ? 0 : std::strtod(line.c_str() + 6, nullptr) * 1024e-6;
}

class Run {
 public:
  explicit Run(const Options& options)
      : options_(options), pipeline_(soc_open(options.bundle.c_str(), &options.pipeline), close), count_(options.bench) {
    if (!pipeline_) throw Failure(soc_error());
    size_t inputs = 0, outputs = 0;
    inputs_ = soc_inputs(pipeline_.get(), &inputs);
    outputs_ = soc_outputs(pipeline_.get(), &outputs);
    if (options.inputs.size() > inputs) throw WrongUse("the bundle has fewer inputs than there are --input");
    if (options.outputs.size() > outputs) throw WrongUse("the bundle has fewer outputs than there are --output");
    const std::string* longest = nullptr;
    int64_t length = 0;
    for (size_t place = 0; place < inputs; ++place) {
      const std::string* const path = place < options.inputs.size() ? &options.inputs[place] : nullptr;
      auto [array, count] = read_frames(inputs_[place], path);
      frames_.push_back(std::move(array));
      if (count == 0) continue;
      if (longest != nullptr && count != length) {
        throw Failure(soc::quote(*path) + " has " + std::to_string(count) + " frames, but " + soc::quote(*longest) + " has " +
                      std::to_string(length) + "; save as many of all inputs, or one without the axis of frames");
      }
      longest = path, length = count;
    }
    if (count_ == 0) count_ = static_cast<uint64_t>(std::max<int64_t>(length, 1));
    written_.resize(options.outputs.size());
  }

  // Returns whether no frame failed.
  bool stream() {
    std::thread reader([&] { read_results(); });
    std::vector<soc_tensor> tensors(inputs_, inputs_ + frames_.size());
    std::string problem;
    for (uint64_t number = 0; number < count_ && problem.empty(); ++number) {
      for (size_t place = 0; place < tensors.size(); ++place) {
        const size_t frame = number % static_cast<uint64_t>(frames_[place].shape[0]);
        tensors[place].data = frames_[place].content.data() + frame * tensors[place].nbytes;
      }
      if (soc_submit(pipeline_.get(), tensors.data(), tensors.size(), -1, nullptr) != SOC_OK) problem = soc_error();
    }
    soc_finish(pipeline_.get());
    reader.join();
    if (!problem.empty()) std::cerr << "error: " << problem << "\n";
    if (failed_ > kMostLines) std::cerr << "error: " << failed_ << " of " << count_ << " frames failed\n";
    return problem.empty() && failed_ == 0;
  }

  void write_outputs() const {
    for (size_t place = 0; place < written_.size(); ++place) {
      const soc_tensor& spec = outputs_[place];
      std::vector<int64_t> shape(spec.shape, spec.shape + spec.axes);
      if (count_ > 1 || numbers_.empty()) shape.insert(shape.begin(), static_cast<int64_t>(numbers_.size()));
      soc::write_npy(options_.outputs[place], {spec.dtype, shape, written_[place]});
    }
    if (!options_.numbers.empty()) {
      const auto* const bytes = reinterpret_cast<const char*>(numbers_.data());
      const std::string content(bytes, numbers_.size() * sizeof numbers_[0]);
      soc::write_npy(options_.numbers, {"uint64", {static_cast<int64_t>(numbers_.size())}, content});
    } else if (!written_.empty() && numbers_.size() < count_) {
      std::cerr << "note: " << count_ - numbers_.size() << " of " << count_
                << " frames have no row in --output; --numbers FILE tells the frame of each row\n";
    }
  }

  void print_bench() const {
    soc_statistics books;
    soc_get_statistics(pipeline_.get(), &books);
    const double rate = books.elapsed_s > 0 ? static_cast<double>(books.delivered) / books.elapsed_s : 0;
    std::cout << "{\"submitted\": " << books.submitted << ", \"delivered\": " << books.delivered
              << ", \"dropped\": " << books.dropped << ", \"failed\": " << books.failed << std::fixed
              << ", \"first_result_ms\": " << first_result_.count() << ", \"frames_per_s\": " << rate
              << ", \"peak_mb\": " << peak_mb() << "}\n";
  }

 private:
  static void close(soc_pipeline* pipeline) { soc_close(pipeline, nullptr); }

  void read_results() {
    const bool are_counted = !written_.empty() || !options_.numbers.empty();
    soc_result result;
    for (soc_status status; (status = soc_next(pipeline_.get(), &result, -1)) != SOC_END;) {
      if (first_result_.count() == 0) first_result_ = Clock::now() - begin_;
      if (status == SOC_FAILED && ++failed_ <= kMostLines) {
        std::cerr << "error: frame " << result.frame << " failed in " << result.stage << ": " << result.reason << "\n";
      }
      for (size_t place = 0; status == SOC_OK && place < written_.size(); ++place) {
        written_[place].append(static_cast<const char*>(result.outputs[place].data), result.outputs[place].nbytes);
      }
      if (status == SOC_OK && are_counted) numbers_.push_back(result.frame);
      soc_release(pipeline_.get(), &result);
    }
  }

  // Lines of failed frames: more tell nobody more.
  static constexpr uint64_t kMostLines = 20;

  const Clock::time_point begin_ = Clock::now();
  const Options& options_;
  const std::unique_ptr<soc_pipeline, void (*)(soc_pipeline*)> pipeline_;
  const soc_tensor *inputs_, *outputs_;
  std::vector<soc::Array> frames_;
  std::vector<std::string> written_;
  std::vector<uint64_t> numbers_;  // of the frames that were delivered
  uint64_t count_, failed_ = 0;
  std::chrono::duration<double, std::milli> first_result_{};
};

}  // namespace

int main(int count, char** words) {
  try {
    const Options options = read_options({words + 1, words + count});
    Run run(options);
    const bool is_complete = run.stream();
    run.write_outputs();
    if (options.bench > 0) run.print_bench();
    return is_complete ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return dynamic_cast<const WrongUse*>(&error) != nullptr ? 2 : 1;
  }
}
