// Frame: one input on its way, in memory that is used again for later frames.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/tensor.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "manifest.h"
#include "soc_pipeline.h"

namespace soc {

// Which stages follow which, and how often each tensor is read, the caller included.
struct Wiring {
  explicit Wiring(const Manifest& manifest);

  std::vector<std::vector<size_t>> successors;
  std::vector<uint32_t> predecessors, readers;
  std::vector<size_t> roots;
  uint32_t leaves = 0;
};

struct Frame {
  enum End { kNone, kFailed, kCancelled };

  Frame(const Manifest& manifest, const Wiring& wiring);

  // Makes it ready for its way; its inputs have been filled in.
  void begin(const Manifest& manifest, const Wiring& wiring);
  // Lets go of all tensors.
  void clear();
  // Notes that a tensor has been read once, and lets go of it after the last time.
  void read(size_t tensor) {
    if (unread[tensor].fetch_sub(1, std::memory_order_acq_rel) == 1) tensors[tensor].reset();
  }
  // Ends it early; the first reason stays.
  bool end_early(End early) {
    End none = kNone;
    return end.compare_exchange_strong(none, early, std::memory_order_acq_rel);
  }
  void fail(const char* stage_name, const char* text, size_t nbytes) {
    if (!end_early(kFailed)) return;
    stage = stage_name;
    nbytes = std::min(nbytes, sizeof reason - 1);
    std::memcpy(reason, text, nbytes);
    reason[nbytes] = '\0';
  }

  uint64_t number = 0;
  bool is_finished = false;  // guarded by the pipeline
  std::atomic<End> end{kNone};
  const char* stage = nullptr;
  char reason[496] = "";  // of a fixed size: nothing is allocated for a frame
  std::vector<tvm::ffi::Tensor> inputs;
  std::vector<tvm::ffi::Any> tensors;
  std::vector<soc_tensor> outputs;
  std::unique_ptr<std::atomic<uint32_t>[]> unread, missing;  // readers of each tensor, predecessors of each stage
  std::atomic<uint32_t> leaves{0};
};

}  // namespace soc
