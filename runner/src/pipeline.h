// Pipeline: a bundle that is running.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <thread>

#include "machine.h"

namespace soc {

class Pipeline {
 public:
  Pipeline(const std::string& folder, const soc_options& options);
  ~Pipeline();

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

  struct Stage {
    explicit Stage(const StagePlan& stage_plan) : plan(stage_plan), inbox(stage_plan.queue_depth) {}

    const StagePlan& plan;
    size_t predecessors = 0;
    std::vector<size_t> successors;
    Queue inbox;
    std::condition_variable arrival, room;
    soc_stage_statistics books{};
  };

  void wire();
  void start_workers();
  void end_workers();
  void live(size_t number, const std::vector<int64_t>& cores, std::promise<void>* opened);
  void work(Stage* stage, Machine* machine, const std::vector<std::mutex*>& cores);
  void run(Lock* lock, Stage* stage, Frame* frame, Machine* machine, const std::vector<std::mutex*>& cores);
  void pass_on(Lock* lock, const Stage& stage, Frame* frame);
  void check_inputs(const soc_tensor* tensors, size_t count) const;
  bool has_room() const;
  void start_waiting();
  void start(Frame* frame);
  void recycle(Frame* frame);
  void end_waiting(uint64_t* count);
  void note_end(uint64_t* count);
  void wake_all();
  template <typename Condition>
  bool wait(Lock* lock, std::condition_variable& signal, double timeout_s, Condition condition);

  const Bundle bundle_;
  const soc_admission admission_;
  const size_t capacity_;
  std::vector<soc_tensor> inputs_, outputs_;
  std::vector<uint32_t> readers_;    // of each tensor, the caller included
  std::vector<size_t> roots_;        // stages that read inputs only
  std::map<int64_t, std::mutex> cores_;  // of those that several stages compute on
  std::deque<Frame> frames_;

  std::mutex mutex_;  // guards all below, and what frames say
  std::deque<Stage> stages_;
  std::condition_variable room_, results_;
  std::vector<Frame*> free_;
  Queue started_;  // in the order of their numbers; the first one is the next to end
  Frame* waiting_ = nullptr;
  size_t active_ = 0;  // started and not released
  size_t submitting_ = 0;
  bool is_finished_ = false, is_closed_ = false, is_over_ = false;
  soc_statistics books_{};
  Clock::time_point first_, last_;

  std::deque<std::promise<void>> opened_;
  std::vector<std::thread> workers_;
};

}  // namespace soc
