// Machine: a stage's code, ready to be run by the thread that made it.
#pragma once

#include <string_view>

#include "frame.h"

namespace soc {

class Machine {
 public:
  // Keeps the calling thread, and those that its kernels use, on some cores; throws Failure if the code cannot start.
  Machine(const Manifest& manifest, const StagePlan& plan, const StageCode& code, const std::vector<int64_t>& cores);

  // Runs the stage; returns why it failed, else nothing.  The text stays valid until the next call.
  std::string_view run(Frame* frame);

 private:
  bool take_outputs(Frame* frame, const ffi::Any& result);

  const Manifest& manifest_;
  const StagePlan& plan_;
  ffi::Function entry_;
  std::vector<TVMFFIAny> arguments_;
  std::vector<DLDataType> dtypes_;
  ffi::Any error_;
};

}  // namespace soc
