// What a person (or with --json a program) sees of a run: start, progress, evaluations, failures with their evidence, the end.
// An observer of the agent's events, made by launcher/start/run_plan.cpp. Lines of workers go to the same ConsoleWriter
// directly (worker_output.hpp).
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
  std::vector<std::string> opening;  // lines for the start of the console: resumed from, renamed to
  std::filesystem::path report;      // named when the run fails; empty: there is none
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
           const std::string& text);  // on stdout for a train.json; on stderr for a script, since stdout is the script's own
  void complain(const std::string& text);
  void tell_decision(const RoundFailed& event);
  void tell_killed();
  void complain_in_red(const std::string& text);  // also when the console is quiet; on stderr
  void tell_failure(const Failure& failure);
  void tell_where_it_stands();
  void tell_script_failure(const RoundFailed& event);
  bool sees_stderr_of(int local_rank) const;  // whether this console shows that worker's stderr
  bool sees_all_stderr() const;

  const Plan& plan_;
  ConsoleFacts facts_;
  ConsoleWriter& writer_;
  bool bar_ = false;  // whether there is progress to show: a script that reports none has no bar
  ProgressMeter meter_;
  std::map<int, std::int64_t> pids_;     // in this round
  std::map<int, std::int64_t> left_;     // rank -> when it exited with code 0 without being asked to, in this round
  std::vector<int> killed_;              // ranks that were asked to stop and died of SIGKILL, in this round
  std::map<std::string, int> failures_;  // "rank 1: hang" -> the number of rounds whose first failure that was
  std::string newest_checkpoint_;        // published by this invocation
  int workers_here_ = 0;
  int workers_of_job_ = 0;                          // as the newest RoundStarted said
  std::set<std::pair<int, std::string>> warnings_;  // of ranks; each is shown once in a run
  bool helper_ignored_ = false;                     // shown once for all ranks, since they run one program
  std::string last_notice_;                         // shown once, however often it is repeated
  struct StragglerLines {
    std::int64_t newest_ns = 0;  // when the newest line was shown; 0: none
    bool is_open = false;        // a line about the end is still to come
  };
  std::map<int, StragglerLines> straggler_lines_;  // by rank
  std::int64_t started_ns_ = 0;
  using Clock = std::chrono::steady_clock;  // nobody sets this clock, unlike that of the events' times
  Clock::time_point round_began_ = Clock::now();
  std::optional<Clock::time_point> failed_;  // when the round before failed; set until all workers of this round have started
  bool restarted_ = false;                   // this round replaces a failed one
  std::int64_t drawn_ns_ = 0;                // when the last bar or line of progress was drawn
  std::int64_t steps_ = 0;
  std::int64_t epochs_ = 0;
  std::int64_t steps_total_ = 0;
  std::optional<channel::EvalResult> evaluation_;
};

}  // namespace ddprun
