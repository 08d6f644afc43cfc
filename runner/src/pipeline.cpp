#include "pipeline.h"

#include <pthread.h>

#include <optional>

#include "processor.h"

namespace soc {

Pipeline::Pipeline(const std::string& folder, const soc_options& options)
    : bundle_(load_bundle(folder)),
      admission_(options.admission),
      capacity_(options.in_flight > 0 ? options.in_flight : bundle_.manifest.in_flight),
      started_(capacity_) {
  if (admission_ != SOC_BLOCK && admission_ != SOC_LATEST) throw Failure("the admission must be block or latest");
  const auto describe = [this](size_t tensor) -> soc_tensor {
    const TensorSpec& spec = bundle_.manifest.tensors[tensor];
    return {spec.name.c_str(), spec.dtype.c_str(), spec.shape.data(), spec.shape.size(), spec.nbytes, nullptr};
  };
  for (const size_t tensor : bundle_.manifest.inputs) inputs_.push_back(describe(tensor));
  for (const size_t tensor : bundle_.manifest.outputs) outputs_.push_back(describe(tensor));
  wire();
  // With `latest` one more waits at the entrance, and one is being copied in.
  const size_t count = capacity_ + (admission_ == SOC_LATEST ? 2 : 0);
  for (size_t number = 0; number < count; ++number) free_.push_back(&frames_.emplace_back(bundle_.manifest));
  try {
    start_workers();
  } catch (...) {
    end_workers();
    throw;
  }
}

Pipeline::~Pipeline() {
  close();
  end_workers();
}

void Pipeline::wire() {
  readers_.resize(bundle_.manifest.tensors.size());
  std::vector<Stage*> makers(readers_.size());
  for (const StagePlan& plan : bundle_.manifest.stages) {
    const size_t number = stages_.size();
    Stage& stage = stages_.emplace_back(plan);
    stage.books.name = plan.name.c_str(), stage.books.device = plan.device.c_str();
    stage.books.replicas = static_cast<uint32_t>(plan.replicas);
    for (const size_t tensor : plan.inputs) {
      ++readers_[tensor];
      Stage* const maker = makers[tensor];
      // A stage that makes several of the inputs is one predecessor.
      if (maker == nullptr || (!maker->successors.empty() && maker->successors.back() == number)) continue;
      maker->successors.push_back(number);
      ++stage.predecessors;
    }
    for (const size_t tensor : plan.outputs) makers[tensor] = &stage;
    if (stage.predecessors == 0) roots_.push_back(number);
  }
  for (const size_t tensor : bundle_.manifest.outputs) ++readers_[tensor];
}

void Pipeline::start_workers() {
  std::map<int64_t, int> users;
  for (const Stage& stage : stages_) {
    for (const int64_t core : usable_cores(stage.plan.cores)) {
      if (++users[core] > 1) cores_[core];
    }
  }
  for (size_t number = 0; number < stages_.size(); ++number) {
    const StagePlan& plan = stages_[number].plan;
    const auto share = static_cast<std::ptrdiff_t>(plan.cores.size() / plan.replicas);
    auto core = plan.cores.begin();
    for (size_t replica = 0; replica < plan.replicas; ++replica, core += share) {
      workers_.emplace_back(&Pipeline::live, this, number, usable_cores({core, core + share}), &opened_.emplace_back());
    }
  }
  for (std::promise<void>& opened : opened_) opened.get_future().get();
}

void Pipeline::end_workers() {
  {
    const Lock lock(mutex_);
    is_over_ = true;
  }
  for (Stage& stage : stages_) stage.arrival.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pipeline::live(size_t number, const std::vector<int64_t>& cores, std::promise<void>* opened) {
  Stage& stage = stages_[number];
  // Linux shows the first 15 bytes of a thread's name.
  pthread_setname_np(pthread_self(), stage.plan.name.substr(0, 15).c_str());
  flush_denormals();
  std::optional<Machine> machine;
  try {
    const std::vector<StageCode>& family = bundle_.codes[number];
    const std::string processor = processor_of(cores, bundle_.manifest.processors);
    const auto code = std::find_if(family.begin() + 1, family.end(), [&](auto& each) { return each.processor == processor; });
    machine.emplace(bundle_.manifest, stage.plan, code == family.end() ? family[0] : *code, cores);
  } catch (const std::exception& error) {
    const Failure failure("stage " + quote(stage.plan.name) + " cannot start: (" + error.what() + ")");
    return opened->set_exception(std::make_exception_ptr(failure));
  }
  std::vector<std::mutex*> shared_cores;  // in order of their numbers, so that two workers never cross
  for (const int64_t core : cores) {
    if (const auto entry = cores_.find(core); entry != cores_.end()) shared_cores.push_back(&entry->second);
  }
  opened->set_value();
  work(&stage, &*machine, shared_cores);
}

void Pipeline::work(Stage* stage, Machine* machine, const std::vector<std::mutex*>& cores) {
  for (Lock lock(mutex_);;) {
    stage->arrival.wait(lock, [&] { return stage->inbox.size() > 0 || is_over_; });
    if (stage->inbox.size() == 0) return;
    Frame* const frame = stage->inbox.pop();
    ++stage->books.frames_in;
    stage->room.notify_one();
    // Whoever makes room starts the frame that waits for it, or wakes who has one.
    if (stage->predecessors == 0) start_waiting();
    if (frame->end != Frame::kNone) ++stage->books.skipped;
    else run(&lock, stage, frame, machine, cores);
    pass_on(&lock, *stage, frame);
  }
}

void Pipeline::run(Lock* lock, Stage* stage, Frame* frame, Machine* machine, const std::vector<std::mutex*>& cores) {
  lock->unlock();
  // Two stages that compute on one core at once would only slow each other down.
  for (std::mutex* core : cores) core->lock();
  const Clock::time_point start = Clock::now();
  const std::string_view problem = machine->run(frame);
  const std::chrono::duration<double> spent = Clock::now() - start;
  for (std::mutex* core : cores) core->unlock();
  lock->lock();
  stage->books.busy_s += spent.count();
  ++(problem.empty() ? stage->books.frames_out : stage->books.failed);
  // The first reason stays.
  if (problem.empty() || frame->end != Frame::kNone) return;
  frame->end = Frame::kFailed;
  frame->stage = stage->plan.name.c_str();
  frame->reason[problem.copy(frame->reason, sizeof frame->reason - 1)] = '\0';
}

void Pipeline::pass_on(Lock* lock, const Stage& stage, Frame* frame) {
  for (const size_t number : stage.successors) {
    if (--frame->missing[number] > 0) continue;
    Stage& successor = stages_[number];
    successor.room.wait(*lock, [&] { return !successor.inbox.full(); });
    successor.inbox.push(frame);
    successor.arrival.notify_one();
  }
  frame->is_finished = --frame->stages_left == 0;
  // Behind another one it cannot leave yet.
  if (frame->is_finished && started_[0] == frame) results_.notify_all();
}

template <typename Condition>
bool Pipeline::wait(Lock* lock, std::condition_variable& signal, double timeout_s, Condition condition) {
  // Numbers that the clock cannot add up stand for ever as well.
  if (!(timeout_s >= 0 && timeout_s < 1e9)) return signal.wait(*lock, condition), true;
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  return signal.wait_until(*lock, Clock::now() + limit, condition);
}

void Pipeline::check_inputs(const soc_tensor* tensors, size_t count) const {
  if (count != inputs_.size()) {
    throw Failure(std::to_string(count) + " inputs given, " + std::to_string(inputs_.size()) + " expected");
  }
  for (size_t place = 0; place < count; ++place) {
    const soc_tensor &tensor = tensors[place], &expected = inputs_[place];
    const int64_t *const shape = tensor.shape, *const planned = expected.shape;
    const char* problem = nullptr;
    if (tensor.nbytes != expected.nbytes || (tensor.data == nullptr && tensor.nbytes > 0)) problem = "number of bytes";
    if (tensor.name && std::strcmp(tensor.name, expected.name) != 0) problem = "name";
    if (tensor.dtype && std::strcmp(tensor.dtype, expected.dtype) != 0) problem = "dtype";
    if (shape && !std::equal(shape, shape + tensor.axes, planned, planned + expected.axes)) problem = "shape";
    if (problem == nullptr) continue;
    throw Failure(std::string("input ") + quote(expected.name) + " has another " + problem + " than the bundle's, which is " +
                  expected.dtype + " of " + std::to_string(expected.nbytes) + " bytes");
  }
}

soc_status Pipeline::submit(const soc_tensor* tensors, size_t count, double timeout_s, uint64_t* number) {
  check_inputs(tensors, count);
  Lock lock(mutex_);
  // A place: the bound on frames inside is what keeps memory flat and excludes deadlock.
  const auto has_place = [&] { return admission_ == SOC_LATEST ? !free_.empty() || waiting_ != nullptr : has_room(); };
  if (!wait(&lock, room_, timeout_s, [&] { return has_place() || is_finished_; })) return SOC_TIMEOUT;
  if (is_finished_) throw Failure("the pipeline takes no more frames");
  if (free_.empty()) end_waiting(&books_.dropped);
  Frame* const frame = free_.back();
  free_.pop_back();
  ++submitting_;
  // Others go on meanwhile.
  lock.unlock();
  for (size_t place = 0; place < count; ++place) {
    // An empty tensor has nothing to copy, and perhaps no address.
    if (tensors[place].nbytes > 0) std::memcpy(frame->inputs[place].data_ptr(), tensors[place].data, tensors[place].nbytes);
  }
  lock.lock();
  --submitting_;
  if (is_closed_) {
    free_.push_back(frame);
    wake_all();
    throw Failure("the pipeline takes no more frames");
  }
  if (books_.submitted == 0) first_ = Clock::now();
  frame->number = books_.submitted++;
  if (number != nullptr) *number = frame->number;
  if (waiting_ != nullptr) end_waiting(&books_.dropped);
  waiting_ = frame;
  start_waiting();
  return SOC_OK;
}

bool Pipeline::has_room() const {
  // Places for frames that are being copied in; with `latest` these wait in the only place at the entrance.
  const size_t taken = admission_ == SOC_BLOCK ? submitting_ : 0;
  return active_ + taken < capacity_ && std::all_of(roots_.begin(), roots_.end(), [&](size_t root) {
           return stages_[root].inbox.size() + taken < stages_[root].plan.queue_depth;
         });
}

void Pipeline::start_waiting() {
  if (waiting_ != nullptr && has_room()) start(std::exchange(waiting_, nullptr));
  // Some wait for a place in memory, others for one in a queue.
  room_.notify_all();
}

void Pipeline::start(Frame* frame) {
  ++active_;
  frame->is_finished = false;
  frame->end = Frame::kNone;
  frame->stages_left = stages_.size();
  for (size_t number = 0; number < stages_.size(); ++number) frame->missing[number] = stages_[number].predecessors;
  for (size_t tensor = 0; tensor < readers_.size(); ++tensor) frame->unread[tensor] = readers_[tensor];
  const std::vector<size_t>& inputs = bundle_.manifest.inputs;
  for (size_t place = 0; place < inputs.size(); ++place) frame->tensors[inputs[place]] = frame->inputs[place];
  started_.push(frame);
  for (const size_t root : roots_) {
    stages_[root].inbox.push(frame);
    stages_[root].arrival.notify_one();
  }
}

void Pipeline::note_end(uint64_t* count) {
  ++*count;
  last_ = Clock::now();
}

void Pipeline::end_waiting(uint64_t* count) {
  free_.push_back(std::exchange(waiting_, nullptr));
  note_end(count);
}

void Pipeline::wake_all() {
  room_.notify_all();
  results_.notify_all();
}

soc_status Pipeline::next(soc_result* result, double timeout_s) {
  Lock lock(mutex_);
  const auto is_ready = [this] { return started_.size() > 0 && started_[0]->is_finished; };
  const auto is_at_end = [this] { return is_finished_ && started_.size() == 0 && !waiting_ && submitting_ == 0; };
  for (;;) {
    if (!wait(&lock, results_, timeout_s, [&] { return is_ready() || is_at_end(); })) return SOC_TIMEOUT;
    if (!is_ready()) return SOC_END;
    Frame* const frame = started_.pop();
    // The frame behind it may have been finished before, when nobody could be told.
    if (is_ready() || is_at_end()) results_.notify_one();
    if (frame->end == Frame::kCancelled) {
      note_end(&books_.cancelled);
      recycle(frame);
      continue;
    }
    const bool failed = frame->end == Frame::kFailed;
    note_end(failed ? &books_.failed : &books_.delivered);
    *result = {frame->number, failed ? frame->stage : nullptr, failed ? frame->reason : nullptr, nullptr, frame};
    if (failed) return SOC_FAILED;
    for (size_t place = 0; place < outputs_.size(); ++place) {
      const ffi::Tensor& tensor = frame->tensors[bundle_.manifest.outputs[place]];
      frame->outputs[place] = outputs_[place];
      frame->outputs[place].data = static_cast<const char*>(tensor.data_ptr()) + tensor.byte_offset();
    }
    result->outputs = frame->outputs.data();
    return SOC_OK;
  }
}

void Pipeline::release(Frame* frame) {
  const Lock lock(mutex_);
  recycle(frame);
}

void Pipeline::recycle(Frame* frame) {
  for (ffi::Tensor& tensor : frame->tensors) tensor = ffi::Tensor();
  --active_;
  free_.push_back(frame);
  start_waiting();
}

bool Pipeline::cancel(uint64_t number) {
  const Lock lock(mutex_);
  if (waiting_ != nullptr && waiting_->number == number) {
    end_waiting(&books_.cancelled);
    wake_all();
    return true;
  }
  for (size_t place = 0; place < started_.size(); ++place) {
    Frame* const frame = started_[place];
    if (frame->number != number) continue;
    const bool is_inside = !frame->is_finished && frame->end == Frame::kNone;
    if (is_inside) frame->end = Frame::kCancelled;
    return is_inside;
  }
  return false;
}

void Pipeline::finish() {
  const Lock lock(mutex_);
  is_finished_ = true;
  wake_all();
}

void Pipeline::close() {
  Lock lock(mutex_);
  is_finished_ = is_closed_ = true;
  if (waiting_ != nullptr) end_waiting(&books_.cancelled);
  for (size_t place = 0; place < started_.size(); ++place) {
    if (started_[place]->end == Frame::kNone) started_[place]->end = Frame::kCancelled;
  }
  room_.notify_all();
  // The stages pass on what was cancelled, without a run.
  while (started_.size() > 0) {
    results_.wait(lock, [this] { return started_[0]->is_finished; });
    note_end(&books_.cancelled);
    recycle(started_.pop());
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
  const Lock lock(mutex_);
  if (number >= stages_.size()) throw Failure("there is no stage " + std::to_string(number));
  soc_stage_statistics books = stages_[number].books;
  books.queue_length = static_cast<uint32_t>(stages_[number].inbox.size());
  return books;
}

}  // namespace soc
