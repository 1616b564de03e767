// What a running job tells of itself: an observer of the agent's events that keeps the newest of each. docs/watching.md names
// the fields, docs/schemas/status.schema.json has them all. Pure but for the facts that it is given; one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/events/progress.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

inline constexpr int kStatusVersion = 1;

// The signals as at which `ddprun stop` lets the agent act: SIGTERM, else the first that it handles; `now`: a second Ctrl-C,
// at which it kills the workers. Empty when the job handles none (--signals-to-handle): then it cannot be stopped in order.
std::vector<int> signals_that_stop(const std::vector<int>& handled, bool now);

struct JobFacts {
  pid_t agent = 0;
  std::filesystem::path logs;    // below it are the workers' log files, if any is written; empty: none
  std::filesystem::path report;  // may be empty
};

class JobStatus : public RunObserver {
 public:
  JobStatus(const Plan& plan, JobFacts facts) : plan_(plan), facts_(std::move(facts)) {}
  void on(const RunEvent& event) override;

  // One JSON object on one line, without '\n'. `now_ns` is of CLOCK_REALTIME.
  std::string json(std::int64_t now_ns) const;

 private:
  struct Worker {
    int local_rank = 0;
    std::int64_t pid = 0;
    std::optional<channel::Phase> phase{};
    std::int64_t step = -1;
    std::int64_t epoch = -1;
    std::int64_t started_ns = 0;
    std::int64_t heard_ns = 0;  // when it last said something; 0: never
    std::optional<ExitStatus> ended{};
  };

  void see(const RunStarted& event);
  void see(const RoundStarted& event);
  void see(const WorkerStarted& event);
  void see(const WorkerSpoke& event);
  void see(const WorkerEnded& event);
  void see(const RoundFailed& event);
  void see(const RegroupFailed& event);
  void see(const StopRequested& event);

  const Plan& plan_;
  JobFacts facts_;
  std::string state_ = "starting";
  std::int64_t started_ns_ = 0;
  RoundStarted round_{};
  std::map<int, Worker> workers_;  // of this node, by rank
  ProgressMeter meter_;
  bool progress_ = false;
  std::string last_failure_;
};

}  // namespace ddprun
