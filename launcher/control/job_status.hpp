// The status of a running job. It observes the agent's events and keeps the newest of each kind. docs/watching.md explains the
// fields, docs/schemas/status.schema.json lists them all. Pure except for facts passed in; one thread.
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
  std::filesystem::path logs;    // the folder of the workers' log files; empty if none are written
  std::filesystem::path report;  // may be empty
  std::string host{};
};

// Facts that are determined only when a status is requested.
struct StatusMoment {
  std::int64_t now_ns = 0;                                    // time of CLOCK_REALTIME
  bool leads = false;                                         // this node is the coordinator, or the job has one machine
  std::function<std::int64_t(std::int64_t pid)> memory_of{};  // resident bytes; 0: unknown
  std::size_t most_bytes = std::string::npos;                 // size limit: workers that would exceed it are left out
};

class JobStatus : public RunObserver {
 public:
  JobStatus(const Plan& plan, JobFacts facts) : plan_(plan), facts_(std::move(facts)) {}
  void on(const RunEvent& event) override;

  // One JSON object on one line, without '\n'.
  std::string json(const StatusMoment& moment) const;
  // Rank and pid of the workers that have not ended.
  std::vector<std::pair<int, std::int64_t>> running_workers() const;

 private:
  struct Worker {
    int local_rank = 0;
    std::int64_t pid = 0;
    std::optional<channel::Phase> phase{};
    std::int64_t step = -1;
    std::int64_t epoch = -1;
    std::int64_t started_ns = 0;
    std::int64_t heard_ns = 0;      // time of its last message; 0: none so far
    std::optional<double> own_s{};  // own time per step, from its last report
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
  std::map<int, Worker> workers_;  // workers of this node, by rank
  ProgressMeter meter_;
  bool progress_ = false;
  std::string last_failure_;
};

}  // namespace ddprun
