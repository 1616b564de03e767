// Prints the events of a run on the console: start, progress, evaluations, failures with their evidence, and the end. The
// output is text for users, or with --json one JSON object per event. launcher/launch/run_plan.cpp creates the Console, which
// receives the agent's events. Workers' output does not pass through it: worker_output.hpp sends their lines directly to the
// same ConsoleWriter.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/events/progress.hpp"
#include "launcher/events/round_model.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/failure_lines.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

struct ConsoleFacts {
  std::vector<std::string> opening;  // lines printed first, such as "resumed from ..." or "renamed to ..."
  std::filesystem::path report;  // path of the report; the console prints it when the run fails; empty if no report is written
};

class Console : public RunObserver, private ConsoleLines {
 public:
  // `round` must receive each event before this object does.
  Console(const Plan& plan, ConsoleFacts facts, ConsoleWriter& writer, const RoundModel& round);
  void on(const RunEvent& event) override;

 private:
  void handle(const RunStarted& event);
  void handle(const RoundStarted& event);
  void print_nodes(const RoundStarted& event);
  void handle(const NodesChanged& event);
  void handle(const WorkerStarted& event);
  void handle(const WorkerReported& event);
  void handle(const WorkerEnded& event);
  void handle(const WorkerContinued&) {}
  void handle(const Straggler& event);
  void handle(const RoundFailed& event);
  void handle(const Regrouped& event);
  void handle(const RegroupFailed& event);
  void handle(const StandbyWaits& event);
  void handle(const StandbyEnded& event);
  void handle(const StopRequested& event);
  void handle(const WorkersLeft& event);
  void handle(const LeftoversFound& event) { warn(describe(event)); }
  void handle(const HelperIgnored& event);
  void handle(const FirstOutput& event);
  void handle(const InputWasRead& event);
  void handle(const RunDirectoryRemoved& event);
  void handle(const CutOff& event);
  void handle(const StopIsSlow& event);
  void handle(const RunEnded& event);

  void on_message(int rank, const channel::Progress& message, std::int64_t time_ns);
  void on_message(int rank, const channel::EvalResult& message);
  void on_message(int rank, const channel::WorkerError& message);
  void on_message(int rank, const channel::CheckpointPublished& message);
  void on_message(int rank, const channel::PhaseChange& message);

  ConsoleFacts facts_;
  const RoundModel& round_;
  FailureLines failures_;
  bool bar_ = false;  // a progress bar is allowed; it is drawn only after the first progress report
  ProgressMeter meter_;
  std::string newest_checkpoint_;                   // path of the newest checkpoint that was published since ddprun was started
  int workers_of_job_ = 0;                          // number of workers in the last line that print_nodes() has printed
  std::set<std::pair<int, std::string>> warnings_;  // (rank, text) of the warnings that were already printed
  bool helper_ignored_ = false;                     // HelperIgnored is printed only once, since all ranks run the same program
  std::string last_notice_;  // text of the last printed NodesChanged line, so that an identical line is not printed again
  struct StragglerLines {
    std::int64_t newest_ns = 0;  // time of the last line about this straggler; 0 if there was none
    bool is_open = false;        // true: the rank is reported as a straggler, and its recovery is not reported yet
  };
  std::map<int, StragglerLines> straggler_lines_;  // key: rank
  std::int64_t started_ns_ = 0;
  bool restarted_ = false;     // true if the current round is a restart
  std::int64_t drawn_ns_ = 0;  // time at which the progress bar or a progress line was last drawn
  std::int64_t steps_ = 0;
  std::int64_t epochs_ = 0;
  std::optional<channel::EvalResult> evaluation_;
};

}  // namespace ddprun
