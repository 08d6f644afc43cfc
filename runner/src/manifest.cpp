#include "manifest.h"

#include <cmath>

#include "json.h"

namespace soc {
namespace {

// As in pipeline/core/plan/plan_checks.py and stage_plan.py.
constexpr int64_t kMostFrames = 1 << 20, kMostReplicas = 1024, kMostPerReplica = 32, kMostCore = 1 << 16;
// Bytes that this machine can address.
constexpr int64_t kLargest = sizeof(void*) > 4 ? int64_t{1} << 48 : PTRDIFF_MAX;

size_t read_size(const Json& json, int64_t least, int64_t most) { return static_cast<size_t>(json.integer(least, most)); }

TensorSpec read_spec(const Json& json) {
  TensorSpec spec{json["name"].text(), json["dtype"].text(), json["shape"].integers(0, kLargest)};
  const auto item = kItemBytes.find(spec.dtype);
  if (item == kItemBytes.end()) json["dtype"].refuse("is " + quote(spec.dtype) + ", which this runner does not know");
  if (spec.shape.size() > 32) json["shape"].refuse("has more than 32 elements");
  spec.nbytes = std::count(spec.shape.begin(), spec.shape.end(), 0) > 0 ? 0 : item->second;
  for (const int64_t extent : spec.shape) {
    const bool overflows = __builtin_mul_overflow(spec.nbytes, extent, &spec.nbytes);
    if (overflows || spec.nbytes > kLargest) json["shape"].refuse("has more bytes than any machine of this kind");
  }
  return spec;
}

BundleFile read_file(const Json& json) {
  BundleFile file{json["file"].text(), json["sha256"].text(), read_size(json["nbytes"], 0, kLargest)};
  // A name with folders in it would lead out of the bundle.
  const bool is_name = file.file.find_first_not_of('.') != file.file.npos && file.file.find('/') == file.file.npos;
  if (is_name && file.file.find('\0') == file.file.npos) return file;
  json["file"].refuse("is " + quote(file.file) + ", which is no name of a file in the bundle");
}

TensorSpec read_entry(const Json& json, const BundleFile& parameters) {
  TensorSpec entry = read_spec(json);
  const size_t offset = read_size(json["offset"], 0, kLargest);
  // An empty one may lie behind the end.
  entry.offset = entry.nbytes > 0 ? offset : 0;
  if (entry.nbytes > parameters.nbytes || entry.offset > parameters.nbytes - entry.nbytes) {
    json.refuse("is not inside of the " + std::to_string(parameters.nbytes) + " bytes of " + quote(parameters.file));
  }
  // Kernels rely on it.
  if (entry.offset % 64 != 0) json["offset"].refuse("is no multiple of 64");
  return entry;
}

StageFiles read_files(const Json& json, const std::string& title, bool is_variant = false) {
  if (json.is_null()) throw Failure(title + " has no code");
  // Packages that compute operators of the stage are Python's.
  if (const auto names = json.find("runtimes").list(&Json::text); !names.empty()) {
    throw Failure(title + " needs " + quote(names[0]) + ", which this runner does not have; run it with soc-pipeline run");
  }
  StageFiles files{read_file(json["library"]), read_file(json["parameters"]), {}, json["machine"].text(), "",
                   json["features"].list(&Json::text), {}};
  files.entries = json["entries"].list([&](const Json& item) { return read_entry(item, files.parameters); });
  if (const Json processor = json.find("processor"); !processor.is_null()) files.processor = processor.text();
  if (!is_variant) files.variants = json.find("variants").list([&](const Json& item) { return read_files(item, title, true); });
  return files;
}

// How many frames replicas begin while the slowest one has one; results leave in order.
size_t count_at_work(const Json& stage, size_t replicas) {
  const Json seconds = stage.find("replica_seconds");
  const std::vector<double> times = seconds.list(&Json::number);
  if (times.empty()) return replicas;
  if (times.size() != replicas) seconds.refuse("has another length than there are replicas");
  const double longest = *std::max_element(times.begin(), times.end());
  double count = 0;
  for (const double time : times) {
    if (!(time >= 0 && time <= 1e9)) seconds.refuse("has a number that is no time");
    count += time > 0 ? std::ceil(longest / time - 1e-9) : 1;
  }
  return static_cast<size_t>(std::min(count, static_cast<double>(kMostPerReplica) * static_cast<double>(replicas)));
}

class PlanReader {
 public:
  explicit PlanReader(Manifest* manifest) : manifest_(*manifest) {}

  void read(const Json& plan, const std::vector<Json>& files) {
    static_cast<void>(plan["format"].integer(2, 2));
    for (const Json& device : plan["board"]["devices"].items()) read_device(device);
    manifest_.inputs = plan["inputs"].list([this](const Json& item) { return add_tensor(item); });
    for (const Json& state : plan.find("states").items()) {
      throw Failure("it keeps the state " + quote(state["input"]["name"].text()) +
                    " from frame to frame, which this runner does not; use soc-pipeline run");
    }
    const std::vector<Json> stages = plan["stages"].items();
    if (stages.empty()) plan["stages"].refuse("is empty");
    std::set<std::string> names;
    for (const Json& stage : stages) {
      const size_t number = manifest_.stages.size();
      if (number >= files.size()) break;
      manifest_.stages.push_back(read_stage(stage, files[number]));
      if (!names.insert(manifest_.stages.back().name).second) stage["name"].refuse("is there twice");
    }
    if (files.size() != stages.size()) {
      throw Failure("it has files of " + std::to_string(files.size()) + " stages, and plans " + std::to_string(stages.size()));
    }
    manifest_.outputs = plan["outputs"].list([this](const Json& item) { return find_tensor(item); });
    if (manifest_.inputs.empty() || manifest_.outputs.empty()) plan.refuse("has no inputs, or no outputs");
    size_t& frames = manifest_.in_flight = read_size(plan["in_flight"], 0, kMostFrames);
    const bool is_open = frames == 0;
    for (const StagePlan& stage : manifest_.stages) frames += is_open ? stage.frames_at_work + stage.queue_depth : 0;
    if (frames > static_cast<size_t>(kMostFrames)) plan.refuse("lets more frames in than memory has room for");
  }

 private:
  void read_device(const Json& device) {
    const std::string& kind = kinds_[device["name"].text()] = device["kind"].text();
    for (const Json& cluster : kind == "cpu" ? device.find("clusters").items() : std::vector<Json>()) {
      const Json processor = cluster.find("target").find("mcpu");
      if (processor.is_null()) continue;
      for (const int64_t core : cluster["cores"].integers(0, kMostCore)) manifest_.processors[core] = processor.text();
    }
  }

  size_t add_tensor(const Json& json) {
    TensorSpec spec = read_spec(json);
    if (!numbers_.emplace(spec.name, numbers_.size()).second) json["name"].refuse("is there twice");
    manifest_.tensors.push_back(std::move(spec));
    return manifest_.tensors.size() - 1;
  }

  size_t find_tensor(const Json& json) {
    const TensorSpec spec = read_spec(json);
    const auto number = numbers_.find(spec.name);
    if (number == numbers_.end()) json.refuse("is " + quote(spec.name) + ", which nothing before it makes");
    const TensorSpec& source = manifest_.tensors[number->second];
    if (source.shape != spec.shape || source.dtype != spec.dtype) json.refuse("is made with another shape or dtype");
    return number->second;
  }

  StagePlan read_stage(const Json& json, const Json& files) {
    StagePlan stage;
    stage.name = json["name"].text(), stage.device = json["device"].text();
    const std::string title = "stage " + quote(stage.name);
    check_device(stage.device, title);
    for (const Json& step : json.find("steps").items()) {
      check_device(step["device"].text(), title);
      throw Failure(title + " has steps on several devices, which this runner does not run; use soc-pipeline run");
    }
    for (const Json& device : json.find("replica_devices").items()) check_device(device.text(), title);
    stage.inputs = json["inputs"].list([this](const Json& item) { return find_tensor(item); });
    stage.outputs = json["outputs"].list([this](const Json& item) { return add_tensor(item); });
    if (stage.inputs.empty() || stage.outputs.empty()) json.refuse("has no inputs, or no outputs");
    stage.queue_depth = read_size(json["queue_depth"], 1, kMostFrames);
    stage.replicas = read_size(json["replicas"], 1, kMostReplicas);
    stage.cores = json["cores"].integers(0, kMostCore);
    if (stage.cores.size() % stage.replicas != 0) json["cores"].refuse("cannot be shared out to the replicas");
    stage.frames_at_work = count_at_work(json, stage.replicas);
    stage.files = read_files(files, title);
    return stage;
  }

  void check_device(const std::string& device, const std::string& title) const {
    const auto kind = kinds_.find(device);
    if (kind == kinds_.end()) throw Failure(title + " is on " + quote(device) + ", which the board does not have");
    if (kind->second == "cpu") return;
    throw Failure(title + " is for " + quote(device) + " of kind " + quote(kind->second) +
                  "; this runner has the CPU only, so run it with soc-pipeline run");
  }

  Manifest& manifest_;
  std::map<std::string, std::string> kinds_;
  std::map<std::string, size_t> numbers_;
};

}  // namespace

Manifest read_manifest(const std::string& document) {
  const Json json = Json::parse(document);
  // The number first: in another format any other field may mean something else.
  if (const int64_t format = json["format"].integer(0, INT64_MAX); format > 1) {
    throw Failure("it has format " + std::to_string(format) +
                  ", newer than 1, which this runner reads; take a newer runner or build the bundle again");
  }
  Manifest manifest;
  manifest.tvm = json["tvm"].text();
  PlanReader(&manifest).read(json["plan"], json["stages"].items());
  return manifest;
}

}  // namespace soc
