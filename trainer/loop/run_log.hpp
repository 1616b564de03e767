// What a run tells the world: metrics.jsonl and TensorBoard (rank 0), progress to the agent (every rank, as a heartbeat), and
// plain lines on stdout when no agent of ours shows them. Nothing here stops training: what can't be written is said once on
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

  // Rank 0 opens the files; what is recorded past `resume_step` is cut. Warnings made before are written now.
  void open(const RunLayout& layout, const TrainConfig& config, const RunLength& length, std::int64_t resume_step);

  // The run goes on from a checkpoint: in a new invocation, or in the same one after a failure.
  enum class Again { kResume, kRestart };
  void resumed(Again again, std::int64_t step, int world, const std::string& checkpoint);
  // The run goes on with the state of those that outlived the loss of others; `replaced`: ranks that are new processes.
  void regrouped(std::int64_t step, int world, const std::vector<int>& replaced);
  // Writes what the other ranks know of the newest step and evaluation, unless it is written.
  void catch_up(const std::optional<StepFigures>& figures, const std::optional<StepEvaluation>& evaluation);
  bool is_open() const { return opened_; }
  // Training begins: speed is measured from here. The first step is told the agent at once, which so knows that one was made.
  void start_clock(std::int64_t step);
  // Of a sample, forward and backward, told once. `peak`: what all workers' devices could do at most in a second; 0: not known.
  bool knows_flops() const { return rank_ != 0 || flops_per_sample_.has_value(); }
  void a_sample_takes(double flops) { flops_per_sample_ = flops; }
  void devices_can(double peak_flops_per_s) { peak_flops_per_s_ = peak_flops_per_s; }
  // Something that is no training took that long: it doesn't count for the speed.
  void stood_still(std::chrono::nanoseconds pause) { interval_begin_ += pause; }
  // A logged step is finished. `parts`: where this rank's time went since the last one, by their names; empty: it is not known.
  // The agent hears of all of them while the round is young, later of rank 0's only, four in a second.
  void step(const StepFigures& figures, const FigureList& parts = {});
  // Any other step is finished: at most every 400 ms something is sent, every 50 ms in the first seconds.
  void heartbeat(std::int64_t step);
  void evaluation(std::int64_t step, const Evaluation& result);
  // A checkpoint is published: training stood still for `pause_s` and the writing took `save_s`. Two calls, since the agent
  // hears of it at once, from whichever thread wrote it; everything else here belongs to the training thread.
  void tell_agent_of_checkpoint(std::int64_t step, const std::string& path, std::int64_t bytes, double pause_s,
                                double save_s) const;
  void checkpoint(std::int64_t step, const std::string& path, std::int64_t bytes, double pause_s, double save_s);
  // How often checkpoints are worth their time, as found by "every": "auto", and what it was computed from.
  void checkpoint_interval(std::int64_t step, double seconds, double save_s, double mtbf_s, std::int64_t failures);
  void stopped_early(std::int64_t step, const std::string& why) const;
  // `skipped`: of these steps, those that changed nothing.
  void end(std::int64_t step, const std::string& how, std::int64_t skipped);
  // Something went wrong and training goes on.
  void warn(channel::ErrorKind kind, const std::string& message);

 private:
  using Clock = std::chrono::steady_clock;
  channel::Progress progress(std::int64_t step) const;
  // The epoch that a finished step belongs to.
  std::int64_t epoch_of(std::int64_t step) const { return length_.epoch_of(step > 0 ? step - 1 : 0); }
  void say(const char* format, ...) const __attribute__((format(printf, 2, 3)));

  Status& status_;
  int rank_;
  bool opened_ = false;
  RunLength length_;
  std::unique_ptr<MetricsLog> metrics_;  // rank 0
  std::unique_ptr<EventFile> events_;    // rank 0, when asked for
  std::vector<std::string> early_warnings_;
  Clock::time_point interval_begin_{};  // of the speed that the next logged step shows
  std::int64_t interval_samples_ = 0;   // used when it began
  std::optional<double> flops_per_sample_;
  double peak_flops_per_s_ = 0;
  Clock::time_point clock_started_{};
  Clock::time_point last_sent_{};
  Clock::time_point last_figures_{};
  Clock::time_point last_said_{};
};

}  // namespace ddprun::trainer
