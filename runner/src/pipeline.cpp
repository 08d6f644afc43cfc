#include "pipeline.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "failure.h"
#include "processor.h"

namespace soc {
namespace {

soc_tensor describe_spec(const TensorSpec& spec) {
  return {spec.name.c_str(), spec.dtype.c_str(), spec.shape.data(), spec.shape.size(), spec.nbytes, nullptr};
}

std::vector<int> cores_of(const StagePlan& stage, size_t replica) {
  const size_t share = stage.cores.size() / stage.replicas;
  const auto begin = stage.cores.begin() + static_cast<std::ptrdiff_t>(replica * share);
  return {begin, begin + static_cast<std::ptrdiff_t>(share)};
}

}  // namespace

Pipeline::Pipeline(const std::string& folder, const soc_options& options)
    : bundle_(load_bundle(folder)),
      wiring_(bundle_.manifest),
      admission_(options.admission),
      capacity_(options.in_flight > 0 ? options.in_flight : bundle_.manifest.in_flight),
      started_(capacity_) {
  const Manifest& manifest = bundle_.manifest;
  if (admission_ != SOC_BLOCK && admission_ != SOC_LATEST) throw Failure("the admission must be block or latest");
  for (const size_t tensor : manifest.inputs) inputs_.push_back(describe_spec(manifest.tensors[tensor]));
  for (const size_t tensor : manifest.outputs) outputs_.push_back(describe_spec(manifest.tensors[tensor]));
  // With `latest` one more waits at the entrance, and one is being copied in.
  const size_t count = capacity_ + (admission_ == SOC_LATEST ? 2 : 0);
  free_.reserve(count);
  for (size_t number = 0; number < count; ++number) free_.push_back(&frames_.emplace_back(manifest, wiring_));
  for (const StagePlan& stage : manifest.stages) inboxes_.push_back(&channels_.emplace_back(stage.queue_depth));
  start_workers();
}

Pipeline::~Pipeline() {
  close();
  end_workers();
}

void Pipeline::start_workers() {
  std::map<int, int> users;
  for (const StagePlan& stage : bundle_.manifest.stages) {
    for (const int core : usable_cores(stage.cores)) ++users[core];
  }
  for (const auto& [core, count] : users) {
    if (count > 1) cores_[core];
  }
  try {
    for (size_t number = 0; number < bundle_.manifest.stages.size(); ++number) {
      for (size_t replica = 0; replica < bundle_.manifest.stages[number].replicas; ++replica) add_worker(number, replica);
    }
    for (Worker& worker : workers_) worker.wait_opened();
  } catch (...) {
    end_workers();
    throw;
  }
}

void Pipeline::add_worker(size_t number, size_t replica) {
  const std::vector<int> cores = usable_cores(cores_of(bundle_.manifest.stages[number], replica));
  std::vector<std::mutex*> shared_cores;
  for (const int core : cores) {
    if (const auto entry = cores_.find(core); entry != cores_.end()) shared_cores.push_back(&entry->second);
  }
  const bool is_root = wiring_.predecessors[number] == 0;
  Supervisor* const self = this;
  workers_.emplace_back(Worker::Assignment{bundle_.manifest, number, bundle_.codes[number], cores, shared_cores, is_root,
                                           *inboxes_[number]},
                        self);
}

void Pipeline::end_workers() {
  for (Channel<Frame*>* inbox : inboxes_) inbox->close();
  workers_.clear();
}

template <typename Condition>
bool Pipeline::wait(Lock& lock, std::condition_variable& signal, double timeout_s, Condition condition) {
  // Numbers that the clock cannot add up stand for ever as well.
  if (!(timeout_s >= 0 && timeout_s < 1e9)) {
    signal.wait(lock, condition);
    return true;
  }
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  return signal.wait_until(lock, Clock::now() + limit, condition);
}

void Pipeline::check_inputs(const soc_tensor* tensors, size_t count) const {
  if (count != inputs_.size()) {
    throw Failure(std::to_string(count) + " inputs given, " + std::to_string(inputs_.size()) + " expected");
  }
  for (size_t place = 0; place < count; ++place) {
    const soc_tensor &tensor = tensors[place], &expected = inputs_[place];
    const std::string title = std::string("input ") + quote(expected.name);
    if (tensor.name && std::strcmp(tensor.name, expected.name) != 0) throw Failure(title + " has another name");
    if (tensor.dtype && std::strcmp(tensor.dtype, expected.dtype) != 0) {
      throw Failure(title + " is " + quote(tensor.dtype) + ", but " + expected.dtype + " is expected");
    }
    if (tensor.shape && !std::equal(tensor.shape, tensor.shape + tensor.axes, expected.shape,
                                    expected.shape + expected.axes)) {
      throw Failure(title + " has another shape than the bundle's");
    }
    if (tensor.nbytes != expected.nbytes || (tensor.data == nullptr && tensor.nbytes > 0)) {
      throw Failure(title + " has " + std::to_string(tensor.data ? tensor.nbytes : 0) + " bytes, but " +
                    std::to_string(expected.nbytes) + " are expected");
    }
  }
}

soc_status Pipeline::submit(const soc_tensor* tensors, size_t count, double timeout_s, uint64_t* number) {
  check_inputs(tensors, count);
  const bool drops = admission_ == SOC_LATEST;
  Lock lock(mutex_);
  // 1. A place in memory; the bound on frames inside is what keeps it flat and excludes deadlock.
  if (!wait(lock, room_, timeout_s, [&] { return !free_.empty() || (drops && waiting_) || is_finished_; })) {
    return SOC_TIMEOUT;
  }
  if (is_finished_) throw Failure("the pipeline takes no more frames");
  if (free_.empty()) {
    free_.push_back(std::exchange(waiting_, nullptr));
    note_end(&books_.dropped);
  }
  Frame* frame = free_.back();
  free_.pop_back();
  ++submitting_;
  // 2. The copy, while others go on.
  lock.unlock();
  for (size_t place = 0; place < count; ++place) {
    // An empty tensor has nothing to copy, and perhaps no address.
    if (tensors[place].nbytes > 0) std::memcpy(frame->inputs[place].data_ptr(), tensors[place].data, tensors[place].nbytes);
  }
  lock.lock();
  // 3. The start, or the wait for it.
  const bool may_start = drops || wait(lock, room_, timeout_s, [&] { return has_room() || is_closed_; });
  --submitting_;
  if (!may_start || is_closed_) {
    free_.push_back(frame);
    room_.notify_all();
    results_.notify_all();
    if (is_closed_) throw Failure("the pipeline takes no more frames");
    return SOC_TIMEOUT;
  }
  if (books_.submitted == 0) first_ = Clock::now();
  frame->number = books_.submitted++;
  if (number != nullptr) *number = frame->number;
  if (!drops) {
    start(frame);
    return SOC_OK;
  }
  if (waiting_ != nullptr) {
    free_.push_back(waiting_);
    note_end(&books_.dropped);
  }
  waiting_ = frame;
  start_waiting();
  return SOC_OK;
}

bool Pipeline::has_room() const {
  return active_ < capacity_ && std::all_of(wiring_.roots.begin(), wiring_.roots.end(), [this](size_t root) {
           return inboxes_[root]->has_room();
         });
}

void Pipeline::start(Frame* frame) {
  ++active_;
  frame->begin(bundle_.manifest, wiring_);
  // First the books, then the channels, which have room: a worker may finish the frame before the next line is run.
  started_.push(frame);
  for (const size_t root : wiring_.roots) inboxes_[root]->put(frame);
}

void Pipeline::start_waiting() {
  if (waiting_ != nullptr && has_room()) start(std::exchange(waiting_, nullptr));
  // Some wait for a place in memory, others for one in a channel.
  room_.notify_all();
}

void Pipeline::note_end(uint64_t* count) {
  ++*count;
  last_ = Clock::now();
}

void Pipeline::on_taken() {
  const Lock lock(mutex_);
  // Whoever makes room starts the frame that waits for it, or wakes who has one.
  if (waiting_ != nullptr) start_waiting();
  else if (submitting_ > 0) room_.notify_all();
}

void Pipeline::on_done(Frame* frame, size_t stage) {
  const std::vector<size_t>& successors = wiring_.successors[stage];
  for (const size_t successor : successors) {
    if (frame->missing[successor].fetch_sub(1, std::memory_order_acq_rel) == 1) inboxes_[successor]->put(frame);
  }
  if (!successors.empty() || frame->leaves.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    const Lock lock(mutex_);
    frame->is_finished = true;
    // Behind another one it cannot leave yet.
    if (started_.size() == 0 || started_[0] != frame) return;
  }
  results_.notify_all();
}

soc_status Pipeline::next(soc_result* result, double timeout_s) {
  Lock lock(mutex_);
  for (;;) {
    const auto is_ready = [this] { return started_.size() > 0 && started_[0]->is_finished; };
    const auto is_over = [this] {
      return is_finished_ && started_.size() == 0 && waiting_ == nullptr && submitting_ == 0;
    };
    if (!wait(lock, results_, timeout_s, [&] { return is_ready() || is_over(); })) return SOC_TIMEOUT;
    if (!is_ready()) return SOC_END;
    Frame* frame = started_.pop();
    // The frame behind it may have been finished before, when nobody could be told.
    if (is_ready() || is_over()) results_.notify_one();
    if (frame->end.load(std::memory_order_acquire) == Frame::kCancelled) {
      note_end(&books_.cancelled);
      recycle(frame);
      continue;
    }
    const bool failed = frame->end.load(std::memory_order_acquire) == Frame::kFailed;
    note_end(failed ? &books_.failed : &books_.delivered);
    lock.unlock();
    describe(frame, result);
    return failed ? SOC_FAILED : SOC_OK;
  }
}

void Pipeline::describe(Frame* frame, soc_result* result) {
  *result = {frame->number, nullptr, nullptr, nullptr, frame};
  if (frame->end.load(std::memory_order_acquire) == Frame::kFailed) {
    result->stage = frame->stage;
    result->reason = frame->reason;
    return;
  }
  for (size_t place = 0; place < outputs_.size(); ++place) {
    const tvm::ffi::AnyView tensor = frame->tensors[bundle_.manifest.outputs[place]];
    const DLTensor* content = TVMFFITensorGetDLTensorPtr(tensor.CopyToTVMFFIAny().v_obj);
    frame->outputs[place] = outputs_[place];
    frame->outputs[place].data = static_cast<const char*>(content->data) + content->byte_offset;
  }
  result->outputs = frame->outputs.data();
}

void Pipeline::release(Frame* frame) {
  // Without the lock: memory goes back to TVM's pool.
  frame->clear();
  const Lock lock(mutex_);
  recycle(frame);
}

void Pipeline::recycle(Frame* frame) {
  frame->clear();
  --active_;
  free_.push_back(frame);
  start_waiting();
}

bool Pipeline::cancel(uint64_t number) {
  const Lock lock(mutex_);
  if (waiting_ != nullptr && waiting_->number == number) {
    free_.push_back(std::exchange(waiting_, nullptr));
    note_end(&books_.cancelled);
    room_.notify_all();
    results_.notify_all();
    return true;
  }
  for (size_t place = 0; place < started_.size(); ++place) {
    Frame* frame = started_[place];
    if (frame->number == number) return !frame->is_finished && frame->end_early(Frame::kCancelled);
  }
  return false;
}

void Pipeline::finish() {
  const Lock lock(mutex_);
  is_finished_ = true;
  room_.notify_all();
  results_.notify_all();
}

void Pipeline::close() {
  Lock lock(mutex_);
  is_finished_ = is_closed_ = true;
  if (waiting_ != nullptr) {
    free_.push_back(std::exchange(waiting_, nullptr));
    note_end(&books_.cancelled);
  }
  for (size_t place = 0; place < started_.size(); ++place) started_[place]->end_early(Frame::kCancelled);
  room_.notify_all();
  // The stages pass on what was cancelled, without a run.
  while (started_.size() > 0) {
    results_.wait(lock, [this] { return started_[0]->is_finished; });
    Frame* frame = started_.pop();
    note_end(&books_.cancelled);
    recycle(frame);
  }
  results_.notify_all();
}

soc_statistics Pipeline::statistics() {
  const Lock lock(mutex_);
  soc_statistics books = books_;
  // What is left over, and no count of its own: so the sum always holds.
  books.in_flight = books.submitted - books.delivered - books.dropped - books.failed - books.cancelled;
  if (books.submitted > 0) {
    books.elapsed_s = std::chrono::duration<double>((books.in_flight > 0 ? Clock::now() : last_) - first_).count();
  }
  return books;
}

soc_stage_statistics Pipeline::stage_statistics(size_t number) {
  if (number >= bundle_.manifest.stages.size()) throw Failure("there is no stage " + std::to_string(number));
  const StagePlan& stage = bundle_.manifest.stages[number];
  soc_stage_statistics sum{stage.name.c_str(), stage.device.c_str(), 0, 0, 0, 0, 0, 0, 0};
  for (const Worker& worker : workers_) {
    if (worker.stage() != number) continue;
    const Counters& counters = worker.counters();
    // Ends before beginnings, so that no frame has ended which has not come.
    sum.frames_out += counters.frames_out.load();
    sum.failed += counters.failed.load();
    sum.skipped += counters.skipped.load();
    sum.frames_in += counters.frames_in.load();
    sum.busy_s += static_cast<double>(counters.busy_ns.load()) * 1e-9;
  }
  sum.replicas = static_cast<uint32_t>(stage.replicas);
  sum.queue_length = static_cast<uint32_t>(inboxes_[number]->size());
  return sum;
}

}  // namespace soc
