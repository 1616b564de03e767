// The status of a running job. The class observes the agent's events and stores the newest values. docs/watching.md explains
// the fields, and docs/schemas/status.schema.json defines all of them. The code is pure: the caller passes in the time and the
// memory of processes. Use it on one thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/events/progress.hpp"
#include "launcher/events/round_model.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

inline constexpr int kStatusVersion = 2;

struct JobFacts {
  pid_t agent = 0;
  std::filesystem::path logs;    // the directory of the workers' log files; empty if no files are written
  std::filesystem::path report;  // empty if no report is written
  std::string host{};
};

// Values that are read only when a client requests the status.
struct StatusContext {
  std::int64_t now_ns = 0;                                    // time of CLOCK_REALTIME in nanoseconds
  bool leads = false;                                         // this node is the coordinator, or the job runs on one machine
  std::function<std::int64_t(std::int64_t pid)> memory_of{};  // returns the resident bytes of a process; 0 if unknown
  std::size_t max_bytes = std::string::npos;  // maximum length of the text; a longer text is replaced by one without workers
};

class JobStatus : public RunObserver {
 public:
  // `round` must observe each event before this object does.
  JobStatus(const Plan& plan, JobFacts facts, const RoundModel& round) : plan_(plan), facts_(std::move(facts)), round_(round) {}
  void on(const RunEvent& event) override;

  // Returns one JSON object on one line, without '\n'.
  std::string json(const StatusContext& context) const;
  int nodes() const { return round_.round().nodes; }  // number of nodes in the round
  // Returns the rank and pid of each worker that has not ended.
  std::vector<std::pair<int, std::int64_t>> running_workers() const;

 private:
  const Plan& plan_;
  JobFacts facts_;
  const RoundModel& round_;
  std::string state_ = "starting";
  std::int64_t started_ns_ = 0;
  ProgressMeter meter_;
  bool progress_ = false;
  std::string last_failure_;
};

}  // namespace ddprun
