#include "machine.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/string.h>

#include <mutex>

#include "processor.h"

namespace soc {
namespace {

// TVM's thread pool belongs to the thread that first calls it, and would pin itself to the first cores of the machine,
// the same ones for every stage, unless told before.
void keep_on(const std::vector<int64_t>& cores) {
  if (cores.empty()) return;
  pin(cores);
  ffi::Array<ffi::String> numbers;
  for (const int64_t core : cores) numbers.push_back(std::to_string(core));
  constexpr int kOneCorePerThread = -2;  // as in TVM's threading_backend.h
  const ffi::Function configure = global_function("runtime.config_threadpool");
  call(configure, kOneCorePerThread, static_cast<int>(cores.size()), numbers);
}

// The caller gets one piece of memory.
bool is_as_planned(const ffi::Tensor& tensor, const TensorSpec& spec, DLDataType dtype) {
  const ffi::ShapeView shape = tensor.shape();
  return tensor.device().device_type == kDLCPU && tensor.dtype() == dtype && tensor.IsContiguous() &&
         std::equal(shape.begin(), shape.end(), spec.shape.begin(), spec.shape.end());
}

}  // namespace

Machine::Machine(const Manifest& manifest, const StagePlan& plan, const StageCode& code, const std::vector<int64_t>& cores)
    : manifest_(manifest), plan_(plan), arguments_(plan.inputs.size()) {
  keep_on(cores);
  {
    // Lest two threads look up or register the same things of a library at once.
    static std::mutex opening;
    const std::lock_guard lock(opening);
    entry_ = make_entry(code);
  }
  for (const ffi::Tensor& tensor : code.parameters) arguments_.push_back(ffi::AnyView(tensor).CopyToTVMFFIAny());
  for (const size_t tensor : plan.outputs) dtypes_.push_back(ffi::StringToDLDataType(manifest.tensors[tensor].dtype));
}

std::string_view Machine::run(Frame* frame) {
  for (size_t place = 0; place < plan_.inputs.size(); ++place) {
    arguments_[place] = ffi::AnyView(frame->tensors[plan_.inputs[place]]).CopyToTVMFFIAny();
  }
  // By the C interface, which needs no memory of ours where it fails.
  TVMFFIAny raw{};
  const auto handle = ffi::details::ObjectUnsafe::RawObjectPtrFromObjectRef(entry_);
  if (TVMFFIFunctionCall(handle, arguments_.data(), static_cast<int>(arguments_.size()), &raw) != 0) {
    error_ = ffi::details::MoveFromSafeCallRaised();
    if (error_ == nullptr) return "it failed without a reason";
    const auto* cell = TVMFFIErrorGetCellPtr(ffi::AnyView(error_).CopyToTVMFFIAny().v_obj);
    const std::string_view message(cell->message.data, cell->message.size);
    return message.empty() ? "it failed without a reason" : message.substr(0, message.find('\n'));
  }
  if (!take_outputs(frame, ffi::details::AnyUnsafe::MoveTVMFFIAnyToAny(&raw))) return "its outputs are not those of the plan";
  for (const size_t tensor : plan_.inputs) {
    if (frame->unread[tensor].fetch_sub(1, std::memory_order_acq_rel) == 1) frame->tensors[tensor] = ffi::Tensor();
  }
  return {};
}

bool Machine::take_outputs(Frame* frame, const ffi::Any& result) {
  const auto list = result.as<ffi::Array<ffi::Any>>();
  if ((list ? list->size() : 1) != plan_.outputs.size()) return false;
  for (size_t place = 0; place < plan_.outputs.size(); ++place) {
    const auto tensor = (list ? *(list->begin() + static_cast<std::ptrdiff_t>(place)) : result).as<ffi::Tensor>();
    const size_t number = plan_.outputs[place];
    if (!tensor || !is_as_planned(*tensor, manifest_.tensors[number], dtypes_[place])) return false;
    // What nobody reads would stay in memory until the frame ends.
    if (frame->unread[number].load(std::memory_order_relaxed) > 0) frame->tensors[number] = *tensor;
  }
  return true;
}

}  // namespace soc
