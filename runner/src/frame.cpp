#include "frame.h"

#include <algorithm>
#include <set>

#include "bundle.h"

namespace soc {

Wiring::Wiring(const Manifest& manifest)
    : successors(manifest.stages.size()), predecessors(manifest.stages.size()), readers(manifest.tensors.size()) {
  constexpr size_t kCaller = SIZE_MAX;
  std::vector<size_t> makers(manifest.tensors.size(), kCaller);
  for (size_t number = 0; number < manifest.stages.size(); ++number) {
    const StagePlan& stage = manifest.stages[number];
    std::set<size_t> before;
    for (const size_t tensor : stage.inputs) {
      ++readers[tensor];
      if (makers[tensor] != kCaller) before.insert(makers[tensor]);
    }
    for (const size_t tensor : stage.outputs) makers[tensor] = number;
    for (const size_t predecessor : before) successors[predecessor].push_back(number);
    predecessors[number] = static_cast<uint32_t>(before.size());
    if (before.empty()) roots.push_back(number);
  }
  for (const size_t tensor : manifest.outputs) ++readers[tensor];
  leaves = static_cast<uint32_t>(std::count_if(successors.begin(), successors.end(), [](auto& s) { return s.empty(); }));
}

Frame::Frame(const Manifest& manifest, const Wiring& wiring)
    : tensors(manifest.tensors.size()),
      outputs(manifest.outputs.size()),
      unread(new std::atomic<uint32_t>[manifest.tensors.size()]),
      missing(new std::atomic<uint32_t>[wiring.predecessors.size()]) {
  for (const size_t tensor : manifest.inputs) inputs.push_back(make_tensor(manifest.tensors[tensor]));
}

void Frame::begin(const Manifest& manifest, const Wiring& wiring) {
  is_finished = false;
  end.store(kNone, std::memory_order_relaxed);
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    unread[tensor].store(wiring.readers[tensor], std::memory_order_relaxed);
  }
  for (size_t stage_number = 0; stage_number < wiring.predecessors.size(); ++stage_number) {
    missing[stage_number].store(wiring.predecessors[stage_number], std::memory_order_relaxed);
  }
  leaves.store(wiring.leaves, std::memory_order_relaxed);
  for (size_t place = 0; place < inputs.size(); ++place) tensors[manifest.inputs[place]] = inputs[place];
}

void Frame::clear() {
  for (tvm::ffi::Any& tensor : tensors) tensor.reset();
}

}  // namespace soc
