// The console view of a run: start, progress, evaluations, failures with their evidence, and the end. The text is for people,
// or JSON for programs with --json. Console observes the agent's events and is created by launcher/start/run_plan.cpp. Worker
// lines bypass it: they go directly to the same ConsoleWriter (worker_output.hpp).
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/events/progress.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

struct ConsoleFacts {
  std::vector<std::string> opening;  // lines printed first, such as "resumed from" or "renamed to"
  std::filesystem::path report;      // path shown when the run fails; empty if no report is written
};

class Console : public RunObserver {
 public:
  Console(const Plan& plan, ConsoleFacts facts, ConsoleWriter& writer);
  void on(const RunEvent& event) override;

 private:
  void see(const RunStarted& event);
  void see(const RoundStarted& event);
  void say_nodes(const RoundStarted& event);
  void see(const NodesChanged& event);
  void see(const WorkerStarted& event);
  void see(const WorkerSpoke& event);
  void see(const WorkerEnded& event);
  void see(const WorkerContinued&) {}
  void see(const Straggler& event);
  void see(const RoundFailed& event);
  void see(const Regrouped& event);
  void see(const RegroupFailed& event);
  void see(const StandbyWaits& event);
  void see(const StandbyEnded& event);
  void see(const StopRequested& event);
  void see(const WorkersLeft& event);
  void see(const LeftoversFound& event) { complain(describe(event)); }
  void see(const HelperIgnored& event);
  void see(const FirstOutput& event);
  void see(const InputWasRead& event);
  void see(const RunDirectoryRemoved& event);
  void see(const CutOff& event);
  void see(const StopIsSlow& event);
  void see(const RunEnded& event);

  void hear(int rank, const channel::Progress& message, std::int64_t time_ns);
  void hear(int rank, const channel::EvalResult& message);
  void hear(int rank, const channel::WorkerError& message);
  void hear(int rank, const channel::CheckpointPublished& message);
  void hear(int rank, const channel::PhaseChange& message);

  bool train() const { return plan_.kind == Plan::Kind::kTrain; }
  void say(int verbosity,
           // Writes to stdout for a train.json. For a script it writes to stderr, since the script uses stdout.
           const std::string& text);
  void complain(const std::string& text);
  void tell_decision(const RoundFailed& event);
  void tell_killed();
  void complain_in_red(const std::string& text);  // on stderr, even if the console is quiet
  void tell_failure(const Failure& failure);
  void tell_where_it_stands();
  void tell_script_failure(const RoundFailed& event);
  bool sees_stderr_of(int local_rank) const;  // whether this console shows the worker's stderr
  bool sees_all_stderr() const;

  const Plan& plan_;
  ConsoleFacts facts_;
  ConsoleWriter& writer_;
  bool bar_ = false;  // whether the console draws a progress bar: not for a script that reports no progress
  ProgressMeter meter_;
  std::map<int, std::int64_t> pids_;  // PIDs of the current round
  // rank -> time of an exit with code 0 that ddprun had not requested, in the current round
  std::map<int, std::int64_t> left_;
  std::vector<int> killed_;              // ranks of the current round that were asked to stop and then died of SIGKILL
  std::map<std::string, int> failures_;  // "rank 1: hang" -> number of rounds with that first failure
  std::string newest_checkpoint_;        // published by this invocation
  int workers_here_ = 0;
  int workers_of_job_ = 0;                          // from the newest RoundStarted
  std::set<std::pair<int, std::string>> warnings_;  // rank and text; each warning is shown once per run
  bool helper_ignored_ = false;                     // shown once for all ranks, since all run the same program
  std::string last_notice_;                         // a repeated notice is shown only once
  struct StragglerLines {
    std::int64_t newest_ns = 0;  // when the newest line was shown; 0 if none was
    bool is_open = false;        // the line about the end has not been shown yet
  };
  std::map<int, StragglerLines> straggler_lines_;  // by rank
  std::int64_t started_ns_ = 0;
  using Clock = std::chrono::steady_clock;  // steady, while event times use the wall clock, which may be set
  Clock::time_point round_began_ = Clock::now();
  std::optional<Clock::time_point> failed_;  // when the previous round failed; set until all workers of this round have started
  bool restarted_ = false;                   // this round replaces a failed round
  std::int64_t drawn_ns_ = 0;                // when the progress bar or a progress line was last drawn
  std::int64_t steps_ = 0;
  std::int64_t epochs_ = 0;
  std::int64_t steps_total_ = 0;
  std::optional<channel::EvalResult> evaluation_;
};

}  // namespace ddprun
