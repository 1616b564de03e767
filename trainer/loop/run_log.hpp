// All outputs of a training run. Rank 0 writes metrics.jsonl and the TensorBoard events. Every rank sends its progress to the
// agent, which detects a hang when these heartbeats stop. Without an agent, rank 0 prints plain lines on stdout. If a file
// cannot be written, training continues: the error is reported once on stderr.
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
#include "trainer/state/training_state.hpp"
#include "trainer/surroundings/status.hpp"

namespace ddprun::trainer {

class RunLog {
 public:
  RunLog(Status& status, int rank) : status_(status), rank_(rank) {}

  // Opens the files on rank 0, and removes the records of steps after `resume_step`, which the run will repeat. It also writes
  // the warnings that were reported before the files were open.
  void open(const RunLayout& layout, const TrainConfig& config, const RunLength& length, std::int64_t resume_step);

  // Logs that the run resumes from a checkpoint: after a new invocation of ddprun (kResume), or after a failure within the
  // same invocation of ddprun (kRestart).
  enum class ResumeKind { kResume, kRestart };
  void resumed(ResumeKind resume_kind, std::int64_t step, int world, const std::string& checkpoint);
  // Logs that the run continues with the state of the surviving ranks. `replaced` lists the ranks that are new processes.
  void regrouped(std::int64_t step, int world, const std::vector<int>& replaced);
  // Writes the newest step and evaluation unless they are already in the files. They may be missing after a regroup, if the
  // former rank 0 was lost before it wrote them.
  void catch_up(const std::optional<StepMetrics>& figures, const std::optional<StepEvaluation>& evaluation);
  bool is_open() const { return opened_; }
  // Call this when training starts: the logged speed is measured from this call on. The next step is reported to the agent
  // without delay, to show that training works.
  void start_clock(std::int64_t step);
  // These functions set and return the number of floating-point operations per sample, for the forward and backward passes.
  // Rank 0 counts it once; on the other ranks, knows_flops() is always true. `peak_flops_per_s` is the peak rate of all
  // workers' devices together; 0 if unknown.
  bool knows_flops() const { return rank_ != 0 || flops_per_sample_.has_value(); }
  void set_flops_per_sample(double flops) { flops_per_sample_ = flops; }
  void set_peak_flops(double peak_flops_per_s) { peak_flops_per_s_ = peak_flops_per_s; }
  // Excludes a pause, such as an evaluation, from the time over which the speed is computed.
  void exclude_pause(std::chrono::nanoseconds pause) { interval_begin_ += pause; }
  // Logs a finished step whose metrics are known. `parts` has this rank's mean time for each part of a step; empty if unknown.
  // In the first five seconds, every rank sends each such step to the agent. Afterwards rank 0 sends at most four steps a
  // second, and the other ranks send heartbeats.
  void step(const StepMetrics& figures, const MetricList& parts = {});
  // Reports a finished step without metrics to the agent: at most every 50 ms in the first five seconds, then at most every 400
  // ms.
  void heartbeat(std::int64_t step);
  void evaluation(std::int64_t step, const Evaluation& result);
  // Both functions report a published checkpoint. Training was paused for `pause_s` seconds, and writing took `save_s` seconds.
  // The thread that wrote the checkpoint calls the first function, so that the agent is informed immediately. The training
  // thread calls the second one, which writes to metrics.jsonl. Only the training thread may call the other members.
  void report_checkpoint_to_agent(std::int64_t step, const std::string& path, std::int64_t bytes, double pause_s,
                                  double save_s) const;
  void checkpoint(std::int64_t step, const std::string& path, std::int64_t bytes, double pause_s, double save_s);
  // Logs the checkpoint interval that "every": "auto" has chosen, and the values from which it was computed.
  void checkpoint_interval(std::int64_t step, double seconds, double save_s, double mtbf_s, std::int64_t failures);
  void stopped_early(std::int64_t step, const std::string& why) const;
  // Logs the end of the training. `how` completes the line "... at step 100/100". `skipped` is the number of steps that were
  // skipped because of a non-finite loss or gradient.
  void end(std::int64_t step, const std::string& how, std::int64_t skipped);
  // Reports a problem after which training continues: on stderr, to the agent, and on rank 0 in metrics.jsonl.
  void warn(channel::ErrorKind kind, const std::string& message);

 private:
  using Clock = std::chrono::steady_clock;
  channel::Progress progress(std::int64_t step) const;
  // Returns the epoch of a finished step; step 0 counts as epoch 0.
  std::int64_t epoch_of(std::int64_t step) const { return length_.epoch_of(step > 0 ? step - 1 : 0); }
  void print_line(const char* format, ...) const __attribute__((format(printf, 2, 3)));

  Status& status_;
  int rank_;
  bool opened_ = false;
  RunLength length_;
  std::unique_ptr<MetricsLog> metrics_;  // rank 0
  std::unique_ptr<EventFile> events_;    // rank 0, if configured
  std::vector<std::string> early_warnings_;
  Clock::time_point interval_begin_{};  // start of the time over which the next logged speed is measured
  std::int64_t interval_samples_ = 0;   // number of samples that the run had used at interval_begin_
  std::optional<double> flops_per_sample_;
  double peak_flops_per_s_ = 0;
  Clock::time_point clock_started_{};
  Clock::time_point last_sent_{};
  Clock::time_point last_metrics_{};
  Clock::time_point last_printed_{};
};

}  // namespace ddprun::trainer
