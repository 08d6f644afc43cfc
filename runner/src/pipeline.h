// Pipeline: a bundle that is running.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bundle.h"
#include "channel.h"
#include "frame.h"
#include "soc_pipeline.h"
#include "worker.h"

namespace soc {

class Pipeline : private Supervisor {
 public:
  Pipeline(const std::string& folder, const soc_options& options);
  ~Pipeline() override;

  const std::vector<soc_tensor>& inputs() const { return inputs_; }
  const std::vector<soc_tensor>& outputs() const { return outputs_; }

  soc_status submit(const soc_tensor* tensors, size_t count, double timeout_s, uint64_t* number);
  soc_status next(soc_result* result, double timeout_s);
  void release(Frame* frame);
  bool cancel(uint64_t number);
  void finish();
  soc_statistics statistics();
  soc_stage_statistics stage_statistics(size_t number);
  // Cancels what `next` has not returned, and waits until no stage is at work.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  void on_taken() override;
  void on_done(Frame* frame, size_t stage) override;

  void start_workers();
  void add_worker(size_t number, size_t replica);
  void end_workers();
  void check_inputs(const soc_tensor* tensors, size_t count) const;
  bool has_room() const;
  void start(Frame* frame);
  void start_waiting();
  void recycle(Frame* frame);
  void note_end(uint64_t* count);
  void describe(Frame* frame, soc_result* result);
  template <typename Condition>
  bool wait(Lock& lock, std::condition_variable& signal, double timeout_s, Condition condition);

  const Bundle bundle_;
  const Wiring wiring_;
  const soc_admission admission_;
  const size_t capacity_;
  std::vector<soc_tensor> inputs_, outputs_;
  std::list<Channel<Frame*>> channels_;
  std::vector<Channel<Frame*>*> inboxes_;
  std::map<int, std::mutex> cores_;  // of those that several stages compute on
  std::list<Frame> frames_;

  std::mutex mutex_;  // guards all below
  std::condition_variable room_, results_;
  std::vector<Frame*> free_;
  Ring<Frame*> started_;  // in the order of their numbers; the first one is the next to end
  Frame* waiting_ = nullptr;
  size_t active_ = 0;  // started and not released
  size_t submitting_ = 0;
  bool is_finished_ = false, is_closed_ = false;
  soc_statistics books_{};
  Clock::time_point first_, last_;

  std::list<Worker> workers_;  // last: they use all of the above
};

}  // namespace soc
