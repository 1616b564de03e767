// Prints ddprun's own lines on the console. ConsoleLines is the base. FailureLines prints the lines about failures: the failed
// rank with evidence, the decision to restart or stop, and the progress of a failed run. Console (console.cpp) owns one
// FailureLines object, which records how the workers of the round ended. After a failure of a script it prints torchrun's
// summary, which some tools parse (`train.py FAILED`, `exitcode  : -11 (pid: 7)`, ...).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/events/progress.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Returns a number with its noun, such as "1 worker" or "1,024 steps".
inline std::string counted(std::int64_t number, const char* one) {
  return format_count(number) + " " + one + (number == 1 ? "" : "s");
}

// Prints ddprun's own lines: to stdout for a job with a train.json, and to stderr for a script, whose output may be on stdout.
class ConsoleLines {
 protected:
  ConsoleLines(const Plan& plan, ConsoleWriter& writer) : plan_(plan), writer_(writer) {}

  bool train() const { return plan_.kind == Plan::Kind::kTrain; }
  // Prints the line if the plan's verbosity is at least `verbosity`.
  void print(int verbosity, const std::string& text) {
    if (verbosity > plan_.verbosity) return;
    writer_.line(train() ? Stream::kStdout : Stream::kStderr, train() ? text : "ddprun: " + text);
  }
  // Prints a warning to stderr, even with --quiet.
  void warn(const std::string& text) { writer_.line(Stream::kStderr, "ddprun: " + text); }
  // Prints a warning in red if stderr is a terminal, so that a failure differs from the workers' output.
  void warn_in_red(const std::string& text) {
    if (!writer_.colours(Stream::kStderr)) return warn(text);
    writer_.line(Stream::kStderr, "\x1b[1;31mddprun: " + text + "\x1b[0m");
  }

  const Plan& plan_;
  ConsoleWriter& writer_;
};

class FailureLines : private ConsoleLines {
 public:
  FailureLines(const Plan& plan, ConsoleWriter& writer) : ConsoleLines(plan, writer) {}

  void begin_round(const RoundStarted& event);
  void all_started();  // call this when all workers of the round have started
  void worker_ended(const WorkerEnded& event);
  void round_failed(const RoundFailed& event);
  // Counts a failed round. `what` names rank and cause, such as "rank 1: hang".
  void count(const std::string& what) { ++counts_[what]; }
  void print_killed();
  void print_early_exits(std::int64_t before_ns);
  void print_progress_reached(const channel::Progress& figures, const std::string& newest_checkpoint);

  int workers_here() const { return workers_here_; }
  bool shows_all_stderr() const;  // true if the console shows the stderr of every worker on this node

 private:
  // Durations are measured on this clock. The time stamps of events are not used for this, because the wall clock may be
  // changed while the job runs.
  using Clock = std::chrono::steady_clock;

  bool shows_stderr_of(int local_rank) const;
  void print_failure(const Failure& failure);
  void print_script_failure(const RoundFailed& event);
  void print_consequences(const RoundFailed& event);
  void print_decision(const RoundFailed& event);

  int workers_here_ = 0;
  // Ranks of this round that exited with code 0, although ddprun had not ordered them to stop. The value is the time of exit.
  std::map<int, std::int64_t> exited_;
  std::vector<int> killed_;  // ranks of this round that did not stop in time and were killed with SIGKILL
  std::map<std::string, int> counts_;
  Clock::time_point started_ = Clock::now();  // start time of the round
  // Time of the last failure; nullopt after all workers have started again.
  std::optional<Clock::time_point> failed_;
};

}  // namespace ddprun
