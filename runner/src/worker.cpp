#include "worker.h"

#include <pthread.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/string.h>

#include <chrono>

#include "failure.h"
#include "ffi.h"
#include "processor.h"

namespace soc {
namespace {

namespace ffi = tvm::ffi;
using Clock = std::chrono::steady_clock;

// TVM's thread pool belongs to the thread that first calls it, and would pin itself to the first cores of the machine,
// the same ones for every stage, unless told before.
void keep_on(const std::vector<int>& cores) {
  if (cores.empty()) return;
  pin(cores);
  ffi::Array<ffi::String> numbers;
  for (const int core : cores) numbers.push_back(std::to_string(core));
  constexpr int kOneCorePerThread = -2;  // as in TVM's threading_backend.h
  const ffi::Function configure = global_function("runtime.config_threadpool");
  guarded([&] { configure(kOneCorePerThread, static_cast<int>(cores.size()), numbers); });
}

bool is_as_planned(const DLTensor& tensor, const TensorSpec& spec, DLDataType dtype) {
  if (tensor.device.device_type != kDLCPU || static_cast<size_t>(tensor.ndim) != spec.shape.size()) return false;
  if (tensor.dtype.code != dtype.code || tensor.dtype.bits != dtype.bits || tensor.dtype.lanes != dtype.lanes) {
    return false;
  }
  int64_t stride = 1;
  for (size_t axis = spec.shape.size(); axis-- > 0;) {
    if (tensor.shape[axis] != spec.shape[axis]) return false;
    // The caller gets one piece of memory.
    if (tensor.strides != nullptr && spec.shape[axis] > 1 && tensor.strides[axis] != stride) return false;
    stride *= spec.shape[axis];
  }
  return true;
}

}  // namespace

Worker::Worker(Assignment assignment, Supervisor* supervisor)
    : assignment_(std::move(assignment)),
      plan_(assignment_.manifest.stages[assignment_.stage]),
      supervisor_(supervisor),
      thread_(&Worker::live, this) {}

void Worker::wait_opened() {
  std::unique_lock lock(mutex_);
  opened_.wait(lock, [this] { return is_opened_; });
  if (!problem_.empty()) throw Failure("stage " + quote(plan_.name) + " cannot start: " + problem_);
}

void Worker::live() {
  // Linux shows the first 15 bytes of a thread's name.
  pthread_setname_np(pthread_self(), plan_.name.substr(0, 15).c_str());
  std::string problem;
  try {
    open();
  } catch (const std::exception& error) {
    problem = std::string("(") + error.what() + ")";
  }
  const bool can_run = problem.empty();
  {
    const std::lock_guard lock(mutex_);
    is_opened_ = true;
    problem_ = problem;
  }
  opened_.notify_one();
  if (!can_run) return;
  while (Frame* frame = assignment_.inbox.get()) process(frame);
  // TVM's objects of this thread go before the thread's own memory does.
  entry_ = nullptr;
}

void Worker::open() {
  keep_on(assignment_.cores);
  {
    // Lest two threads look up or register the same things of a library at once.
    static std::mutex opening;
    const std::lock_guard lock(opening);
    entry_ = make_entry(assignment_.code);
  }
  arguments_.resize(plan_.inputs.size());
  for (const ffi::Tensor& parameter : assignment_.code.parameters) {
    arguments_.push_back(ffi::AnyView(parameter).CopyToTVMFFIAny());
  }
  for (const size_t tensor : plan_.outputs) {
    dtypes_.push_back(ffi::StringToDLDataType(assignment_.manifest.tensors[tensor].dtype));
  }
}

void Worker::process(Frame* frame) {
  if (assignment_.is_root) supervisor_->on_taken();
  counters_.frames_in.fetch_add(1, std::memory_order_relaxed);
  if (frame->end.load(std::memory_order_acquire) != Frame::kNone) {
    counters_.skipped.fetch_add(1, std::memory_order_relaxed);
  } else {
    // Two stages that compute on one core at once would only slow each other down.
    for (std::mutex* core : assignment_.shared_cores) core->lock();
    const Clock::time_point begin = Clock::now();
    run(frame);
    const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
    for (std::mutex* core : assignment_.shared_cores) core->unlock();
    counters_.busy_ns.fetch_add(static_cast<uint64_t>(spent), std::memory_order_relaxed);
  }
  supervisor_->on_done(frame, assignment_.stage);
}

void Worker::run(Frame* frame) {
  for (size_t place = 0; place < plan_.inputs.size(); ++place) {
    arguments_[place] = ffi::AnyView(frame->tensors[plan_.inputs[place]]).CopyToTVMFFIAny();
  }
  // By the C interface, which needs no memory of ours where it fails.
  TVMFFIAny raw{};
  raw.type_index = kTVMFFINone;
  const auto handle = ffi::details::ObjectUnsafe::RawObjectPtrFromObjectRef(entry_);
  const int status = TVMFFIFunctionCall(handle, arguments_.data(), static_cast<int>(arguments_.size()), &raw);
  if (status != 0) {
    TVMFFIObjectHandle error = nullptr;
    TVMFFIErrorMoveFromRaised(&error);
    if (error == nullptr) return fail(frame, "it failed without a reason", 26);
    const TVMFFIByteArray& message = TVMFFIErrorGetCellPtr(error)->message;
    const void* line_end = std::memchr(message.data, '\n', message.size);
    const size_t nbytes =
        line_end == nullptr ? message.size : static_cast<size_t>(static_cast<const char*>(line_end) - message.data);
    fail(frame, message.data, nbytes);
    TVMFFIObjectDecRef(error);
    return;
  }
  if (!take_outputs(frame, ffi::details::AnyUnsafe::MoveTVMFFIAnyToAny(&raw))) {
    constexpr char kProblem[] = "its outputs are not those of the plan";
    return fail(frame, kProblem, sizeof kProblem - 1);
  }
  for (const size_t tensor : plan_.inputs) frame->read(tensor);
  counters_.frames_out.fetch_add(1, std::memory_order_relaxed);
}

bool Worker::take_outputs(Frame* frame, ffi::Any result) {
  const bool is_alone = result.type_index() == kTVMFFITensor;
  const ffi::ArrayObj* array = is_alone ? nullptr : result.as<ffi::ArrayObj>();
  if ((is_alone ? 1 : array == nullptr ? 0 : array->size()) != plan_.outputs.size()) return false;
  for (size_t place = 0; place < plan_.outputs.size(); ++place) {
    const ffi::Any& item = is_alone ? result : *(array->begin() + place);
    const size_t number = plan_.outputs[place];
    if (item.type_index() != kTVMFFITensor) return false;
    const DLTensor* tensor = TVMFFITensorGetDLTensorPtr(ffi::AnyView(item).CopyToTVMFFIAny().v_obj);
    if (!is_as_planned(*tensor, assignment_.manifest.tensors[number], dtypes_[place])) return false;
    // What nobody reads would stay in memory until the frame ends.
    if (frame->unread[number].load(std::memory_order_relaxed) > 0) frame->tensors[number] = item;
  }
  return true;
}

void Worker::fail(Frame* frame, const char* text, size_t nbytes) {
  counters_.failed.fetch_add(1, std::memory_order_relaxed);
  frame->fail(plan_.name.c_str(), text, nbytes);
}

}  // namespace soc
