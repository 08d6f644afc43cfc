// Frame: one input on its way, in memory that is used again for later frames.
#pragma once

#include <atomic>

#include "bundle.h"
#include "soc_pipeline.h"

namespace soc {

struct Frame {
  enum End { kNone, kFailed, kCancelled };

  explicit Frame(const Manifest& manifest)
      : tensors(manifest.tensors.size()),
        unread(manifest.tensors.size()),
        outputs(manifest.outputs.size()),
        missing(manifest.stages.size()) {
    for (const size_t tensor : manifest.inputs) inputs.push_back(make_tensor(manifest.tensors[tensor]));
  }

  std::vector<ffi::Tensor> inputs;
  std::vector<ffi::Tensor> tensors;
  std::vector<std::atomic<uint32_t>> unread;  // how often each tensor will still be read
  std::vector<soc_tensor> outputs;
  // Guarded by the pipeline.
  uint64_t number = 0;
  std::vector<size_t> missing;  // of each stage, predecessors that are not done
  size_t stages_left = 0;
  bool is_finished = false;
  End end = kNone;
  const char* stage = nullptr;
  char reason[496] = "";  // of a fixed size: nothing is allocated for a frame
};

// A queue in memory that was taken beforehand; the user guards it.
class Queue {
 public:
  explicit Queue(size_t capacity) : frames_(capacity) {}
  size_t size() const { return count_; }
  bool full() const { return count_ == frames_.size(); }
  Frame* operator[](size_t place) const { return frames_[(first_ + place) % frames_.size()]; }
  void push(Frame* frame) { frames_[(first_ + count_++) % frames_.size()] = frame; }
  Frame* pop() {
    --count_;
    return frames_[std::exchange(first_, (first_ + 1) % frames_.size())];
  }

 private:
  std::vector<Frame*> frames_;
  size_t first_ = 0, count_ = 0;
};

}  // namespace soc
