// All outputs of a run: metrics.jsonl and TensorBoard (rank 0), progress to the agent (every rank, as a heartbeat), and plain
// lines on stdout if no ddprun agent shows them. An output that can't be written never stops training: it is reported once on
// stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "common/metrics/event_file.hpp"
#include "common/metrics/metrics_log.hpp"
#include "common/run_directory/run_directory.hpp"
#include "trainer/data/run_length.hpp"
#include "trainer/loop/evaluate.hpp"
#include "trainer/state/training_state.hpp"
#include "trainer/surroundings/status.hpp"

namespace ddprun::trainer {

class RunLog {
 public:
  RunLog(Status& status, int rank) : status_(status), rank_(rank) {}

  // Rank 0 opens the files and removes records after `resume_step`. Earlier warnings are written now.
  void open(const RunLayout& layout, const TrainConfig& config, const RunLength& length, std::int64_t resume_step);

  // The run resumes from a checkpoint: in a new invocation, or in the same one after a failure.
  enum class Again { kResume, kRestart };
  void resumed(Again again, std::int64_t step, int world, const std::string& checkpoint);
  // The run continues with the state of the survivors. `replaced` lists the ranks that are new processes.
  void regrouped(std::int64_t step, int world, const std::vector<int>& replaced);
  // Writes the newest step and evaluation, which survivors know, unless they are already in the files.
  void catch_up(const std::optional<StepFigures>& figures, const std::optional<StepEvaluation>& evaluation);
  bool is_open() const { return opened_; }
  // Training begins: speed is measured from here. The first step is reported to the agent immediately, as the proof that a step
  // was made.
  void start_clock(std::int64_t step);
  // Floating-point operations per sample for forward and backward, set once. `peak` is the peak rate of all workers' devices
  // together; 0: unknown.
  bool knows_flops() const { return rank_ != 0 || flops_per_sample_.has_value(); }
  void a_sample_takes(double flops) { flops_per_sample_ = flops; }
  void devices_can(double peak_flops_per_s) { peak_flops_per_s_ = peak_flops_per_s; }
  // Excludes time that was not training from the speed.
  void stood_still(std::chrono::nanoseconds pause) { interval_begin_ += pause; }
  // A logged step is finished. `parts` is this rank's time since the last logged step, by part; empty if unknown. In the first
  // seconds of a round every rank sends each logged step to the agent. Later only rank 0 sends them, four per second.
  void step(const StepFigures& figures, const FigureList& parts = {});
  // Any other step is finished. Sends at most every 400 ms, and at most every 50 ms in the first seconds.
  void heartbeat(std::int64_t step);
  void evaluation(std::int64_t step, const Evaluation& result);
  // A checkpoint is published: training was stopped for `pause_s`, and writing took `save_s`. There are two calls. The thread
  // that wrote it informs the agent immediately; all other members belong to the training thread.
  void tell_agent_of_checkpoint(std::int64_t step, const std::string& path, std::int64_t bytes, double pause_s,
                                double save_s) const;
  void checkpoint(std::int64_t step, const std::string& path, std::int64_t bytes, double pause_s, double save_s);
  // The interval that "every": "auto" has chosen, and the inputs of that computation.
  void checkpoint_interval(std::int64_t step, double seconds, double save_s, double mtbf_s, std::int64_t failures);
  void stopped_early(std::int64_t step, const std::string& why) const;
  // `skipped` is the number of steps that changed nothing.
  void end(std::int64_t step, const std::string& how, std::int64_t skipped);
  // Reports a problem after which training continues.
  void warn(channel::ErrorKind kind, const std::string& message);

 private:
  using Clock = std::chrono::steady_clock;
  channel::Progress progress(std::int64_t step) const;
  // The epoch of a finished step.
  std::int64_t epoch_of(std::int64_t step) const { return length_.epoch_of(step > 0 ? step - 1 : 0); }
  void say(const char* format, ...) const __attribute__((format(printf, 2, 3)));

  Status& status_;
  int rank_;
  bool opened_ = false;
  RunLength length_;
  std::unique_ptr<MetricsLog> metrics_;  // rank 0
  std::unique_ptr<EventFile> events_;    // rank 0, if configured
  std::vector<std::string> early_warnings_;
  Clock::time_point interval_begin_{};  // begin of the interval for the next logged speed
  std::int64_t interval_samples_ = 0;   // samples used before that interval
  std::optional<double> flops_per_sample_;
  double peak_flops_per_s_ = 0;
  Clock::time_point clock_started_{};
  Clock::time_point last_sent_{};
  Clock::time_point last_figures_{};
  Clock::time_point last_said_{};
};

}  // namespace ddprun::trainer
