// What a running job tells of itself: an observer of the agent's events that keeps the newest of each. docs/watching.md names
// the fields, docs/schemas/status.schema.json has them all. Pure but for the facts that it is given; one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/events/progress.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

inline constexpr int kStatusVersion = 2;

struct JobFacts {
  pid_t agent = 0;
  std::filesystem::path logs;    // below it are the workers' log files, if any is written; empty: none
  std::filesystem::path report;  // may be empty
  std::string host{};
};

// What is known only when somebody asks.
struct StatusMoment {
  std::int64_t now_ns = 0;                                    // of CLOCK_REALTIME
  bool leads = false;                                         // this node coordinates the job; also a job on one machine
  std::function<std::int64_t(std::int64_t pid)> memory_of{};  // bytes in RAM; 0: not known
  std::size_t most_bytes = std::string::npos;                 // workers are left out of an answer that would be longer
};

class JobStatus : public RunObserver {
 public:
  JobStatus(const Plan& plan, JobFacts facts) : plan_(plan), facts_(std::move(facts)) {}
  void on(const RunEvent& event) override;

  // One JSON object on one line, without '\n'.
  std::string json(const StatusMoment& moment) const;
  // Those that have not ended: rank and pid.
  std::vector<std::pair<int, std::int64_t>> running_workers() const;

 private:
  struct Worker {
    int local_rank = 0;
    std::int64_t pid = 0;
    std::optional<channel::Phase> phase{};
    std::int64_t step = -1;
    std::int64_t epoch = -1;
    std::int64_t started_ns = 0;
    std::int64_t heard_ns = 0;      // when it last said something; 0: never
    std::optional<double> own_s{};  // a step, as it said last
    std::optional<double> waiting_s{};
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
  void see(const CutOff& event);

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
