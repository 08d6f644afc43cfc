#include "manifest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "failure.h"
#include "json.h"

namespace soc {
namespace {

constexpr int64_t kFormat = 1, kPlanFormat = 2;
// As in pipeline/core/plan_checks.py.
constexpr int64_t kMostFrames = 1 << 20, kMostReplicas = 1024, kMostCore = 1 << 16, kLargest = int64_t{1} << 48;
constexpr size_t kMostAxes = 32;
// As in pipeline/core/reordering.py.
constexpr size_t kMostPerReplica = 32;

const std::map<std::string, int64_t> kItemBytes = {
    {"bool", 1},  {"int8", 1},   {"int16", 2},  {"int32", 4},   {"int64", 8},   {"uint8", 1},
    {"uint16", 2}, {"uint32", 4}, {"uint64", 8}, {"float16", 2}, {"float32", 4}, {"float64", 8},
};

TensorSpec read_spec(const Json& json) {
  TensorSpec spec{json["name"].text(), json["dtype"].text(), json["shape"].integers(0, kLargest, kMostAxes)};
  const auto item = kItemBytes.find(spec.dtype);
  if (item == kItemBytes.end()) json["dtype"].refuse("is " + quote(spec.dtype) + ", which this runner does not know");
  int64_t nbytes = item->second;
  const bool is_empty = std::find(spec.shape.begin(), spec.shape.end(), 0) != spec.shape.end();
  for (const int64_t extent : spec.shape) {
    if (is_empty) break;
    // Before the product overflows.
    if (extent > kLargest / nbytes) json["shape"].refuse("has more bytes than any machine");
    nbytes *= extent;
  }
  if (static_cast<uint64_t>(nbytes) > SIZE_MAX / 2) json["shape"].refuse("has more bytes than this machine can address");
  spec.nbytes = is_empty ? 0 : static_cast<size_t>(nbytes);
  return spec;
}

BundleFile read_file(const Json& json) {
  BundleFile file{json["file"].text(), json["sha256"].text(), json["nbytes"].integer(0, kLargest)};
  // A name with folders in it would lead out of the bundle.
  if (file.file.empty() || file.file == "." || file.file == ".." || file.file.find('/') != std::string::npos ||
      file.file.find('\0') != std::string::npos) {
    json["file"].refuse("is " + quote(file.file) + ", which is no name of a file in the bundle");
  }
  return file;
}

StageFiles read_files(const Json& json) {
  StageFiles files;
  files.library = read_file(json["library"]);
  files.parameters = read_file(json["parameters"]);
  files.machine = json["machine"].text();
  files.features = json["features"].texts();
  for (const Json& item : json["entries"].items()) {
    ParameterEntry entry{read_spec(item), static_cast<size_t>(item["offset"].integer(0, kLargest))};
    const auto size = static_cast<uint64_t>(files.parameters.nbytes);
    if (entry.array.nbytes > size || (entry.array.nbytes > 0 && entry.offset > size - entry.array.nbytes)) {
      item.refuse("is not inside of the " + std::to_string(size) + " bytes of " + quote(files.parameters.file));
    }
    // Kernels rely on it.
    if (entry.array.nbytes > 0 && entry.offset % 64 != 0) item["offset"].refuse("is no multiple of 64");
    files.entries.push_back(std::move(entry));
  }
  return files;
}

// Packages that compute operators of the stage are Python's.
void refuse_others(const Json& files, const std::string& title) {
  if (const Json runtimes = files.find("runtimes"); !runtimes.is_null()) {
    if (const auto names = runtimes.texts(); !names.empty()) {
      throw Failure(title + " needs " + quote(names[0]) + ", which this runner does not have; run it with soc-pipeline run");
    }
  }
}

// How many frames replicas begin while the slowest one has one; results leave in order.
size_t count_at_work(const Json& stage, size_t replicas) {
  std::vector<double> times;
  if (const Json seconds = stage.find("replica_seconds"); !seconds.is_null()) {
    for (const Json& item : seconds.items()) times.push_back(item.number());
  }
  if (times.empty()) return replicas;
  if (times.size() != replicas) stage["replica_seconds"].refuse("has another length than there are replicas");
  const double longest = *std::max_element(times.begin(), times.end());
  double count = 0;
  for (const double time : times) {
    if (!(time >= 0 && time <= 1e9)) stage["replica_seconds"].refuse("has a number that is no time");
    count += time > 0 ? std::ceil(longest / time - 1e-9) : 1;
  }
  return static_cast<size_t>(std::min(count, static_cast<double>(kMostPerReplica * replicas)));
}

class PlanReader {
 public:
  PlanReader(const Json& plan, const Json& files) : plan_(plan), files_(files.items()) {}

  void read_into(Manifest* manifest) {
    if (plan_["format"].integer(1, 1 << 20) != kPlanFormat) plan_["format"].refuse("is not the one this runner reads");
    for (const Json& device : plan_["board"]["devices"].items()) kinds_[device["name"].text()] = device["kind"].text();
    for (const Json& item : plan_["inputs"].items()) manifest->inputs.push_back(add_tensor(item));
    std::set<std::string> names;
    for (const Json& item : plan_["stages"].items()) {
      manifest->stages.push_back(read_stage(item, manifest->stages.size()));
      if (!names.insert(manifest->stages.back().name).second) item["name"].refuse("is there twice");
    }
    if (manifest->stages.empty()) plan_["stages"].refuse("is empty");
    if (files_.size() != manifest->stages.size()) {
      throw Failure("it has files of " + std::to_string(files_.size()) + " stages, and plans " +
                    std::to_string(manifest->stages.size()));
    }
    for (const Json& item : plan_["outputs"].items()) manifest->outputs.push_back(find_tensor(item));
    if (manifest->inputs.empty() || manifest->outputs.empty()) plan_.refuse("has no inputs, or no outputs");
    manifest->in_flight = bound_frames(*manifest);
    manifest->tensors = std::move(tensors_);
  }

 private:
  size_t add_tensor(const Json& json) {
    TensorSpec spec = read_spec(json);
    if (!numbers_.emplace(spec.name, tensors_.size()).second) json["name"].refuse("is there twice");
    tensors_.push_back(std::move(spec));
    return tensors_.size() - 1;
  }

  size_t find_tensor(const Json& json) {
    const TensorSpec spec = read_spec(json);
    const auto number = numbers_.find(spec.name);
    if (number == numbers_.end()) json.refuse("is " + quote(spec.name) + ", which nothing before it makes");
    const TensorSpec& made = tensors_[number->second];
    if (made.shape != spec.shape || made.dtype != spec.dtype) json.refuse("is made with another shape or dtype");
    return number->second;
  }

  StagePlan read_stage(const Json& json, size_t number) {
    StagePlan stage;
    stage.name = json["name"].text();
    const std::string title = "stage " + quote(stage.name);
    stage.device = json["device"].text();
    check_device(stage.device, title);
    if (const Json steps = json.find("steps"); !steps.is_null() && !steps.items().empty()) {
      for (const Json& step : steps.items()) check_device(step["device"].text(), title);
      throw Failure(title + " has steps on several devices, which this runner does not run; use soc-pipeline run");
    }
    if (const Json devices = json.find("replica_devices"); !devices.is_null()) {
      for (const std::string& device : devices.texts()) check_device(device, title);
    }
    for (const Json& item : json["inputs"].items()) stage.inputs.push_back(find_tensor(item));
    for (const Json& item : json["outputs"].items()) stage.outputs.push_back(add_tensor(item));
    if (stage.inputs.empty() || stage.outputs.empty()) json.refuse("has no inputs, or no outputs");
    read_numbers(json, &stage);
    if (number >= files_.size() || files_[number].is_null()) throw Failure(title + " has no code");
    refuse_others(files_[number], title);
    stage.files = read_files(files_[number]);
    return stage;
  }

  void read_numbers(const Json& json, StagePlan* stage) {
    stage->queue_depth = static_cast<size_t>(json["queue_depth"].integer(1, kMostFrames));
    stage->replicas = static_cast<size_t>(json["replicas"].integer(1, kMostReplicas));
    for (const int64_t core : json["cores"].integers(0, kMostCore, kMostCore)) {
      stage->cores.push_back(static_cast<int>(core));
    }
    if (stage->cores.size() % stage->replicas != 0) json["cores"].refuse("cannot be shared out to the replicas");
    stage->frames_at_work = count_at_work(json, stage->replicas);
  }

  void check_device(const std::string& device, const std::string& title) {
    const auto kind = kinds_.find(device);
    if (kind == kinds_.end()) throw Failure(title + " is on " + quote(device) + ", which the board does not have");
    if (kind->second != "cpu") {
      throw Failure(title + " is for " + quote(device) + " of kind " + quote(kind->second) +
                    "; this runner has the CPU only, so run it with soc-pipeline run");
    }
  }

  size_t bound_frames(const Manifest& manifest) {
    size_t frames = static_cast<size_t>(plan_["in_flight"].integer(0, kMostFrames));
    if (frames == 0) {
      for (const StagePlan& stage : manifest.stages) frames += stage.frames_at_work + stage.queue_depth;
    }
    if (frames > static_cast<size_t>(kMostFrames)) plan_.refuse("lets more frames in than memory has room for");
    return frames;
  }

  Json plan_;
  std::vector<Json> files_;
  std::map<std::string, std::string> kinds_;
  std::vector<TensorSpec> tensors_;
  std::map<std::string, size_t> numbers_;
};

}  // namespace

Manifest read_manifest(const std::string& document) {
  const Json json = Json::parse(document);
  // The number first: in another format any other field may mean something else.
  if (const int64_t format = json["format"].integer(0, INT64_MAX); format > kFormat) {
    throw Failure("it has format " + std::to_string(format) + ", newer than " + std::to_string(kFormat) +
                  ", which this runner reads; take a newer runner or build the bundle again");
  }
  Manifest manifest;
  manifest.tvm = json["tvm"].text();
  PlanReader(json["plan"], json["stages"]).read_into(&manifest);
  return manifest;
}

}  // namespace soc
