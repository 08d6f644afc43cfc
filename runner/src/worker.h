// Worker: the thread of one stage, or of one of its replicas.
#pragma once

#include <tvm/ffi/function.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bundle.h"
#include "channel.h"
#include "frame.h"

namespace soc {

// What a worker tells the pipeline.
class Supervisor {
 public:
  virtual ~Supervisor() = default;
  virtual void on_taken() = 0;               // a frame has left the channel of a first stage
  virtual void on_done(Frame*, size_t) = 0;  // a stage is done with a frame
};

// Counts and times; only the worker writes.
struct Counters {
  std::atomic<uint64_t> frames_in{0}, frames_out{0}, failed{0}, skipped{0}, busy_ns{0};
};

class Worker {
 public:
  struct Assignment {
    const Manifest& manifest;
    size_t stage;
    const StageCode& code;
    std::vector<int> cores;
    std::vector<std::mutex*> shared_cores;  // in order of their numbers, so that two workers never cross
    bool is_root;
    Channel<Frame*>& inbox;
  };

  // Starts the thread; `wait_opened` tells what came of it.
  Worker(Assignment assignment, Supervisor* supervisor);
  ~Worker() { thread_.join(); }

  // Waits until the stage is loaded; throws Failure if it cannot be.
  void wait_opened();
  const Counters& counters() const { return counters_; }
  size_t stage() const { return assignment_.stage; }

 private:
  void live();
  void open();
  void process(Frame* frame);
  void run(Frame* frame);
  bool take_outputs(Frame* frame, tvm::ffi::Any result);
  void fail(Frame* frame, const char* text, size_t nbytes);

  const Assignment assignment_;
  const StagePlan& plan_;
  Supervisor* const supervisor_;
  tvm::ffi::Function entry_;
  std::vector<TVMFFIAny> arguments_;
  std::vector<DLDataType> dtypes_;
  Counters counters_;
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_opened_ = false;
  std::string problem_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace soc
