// Decides whether the job ends and with which exit code, from the records of the workers and of the stop. The functions are
// pure: no I/O, no clock. Only ending_of() chooses the exit code of the agent. In a multi-node job most codes come from the
// coordinator, which chooses them in rendezvous/protocol/job_end.hpp.
//
// Several reasons may be known when the job ends. The first reason of this list that applies sets the exit code:
//   1. A worker cannot be killed. No round can follow, and the agent must not wait for it.
//   2. The agent itself has failed.
//   3. The coordinator has ended the job, or a second signal has arrived while the coordinator does not answer.
//   4. All workers have finished their work.
//   5. A signal or a preempted worker has stopped the job: 85 if all workers have saved, otherwise 128 + the signal's number.
//   6. The restart policy allows no restart after the first failure.
#pragma once

#include <optional>
#include <string>

#include "launcher/agent_state/round_judgement.hpp"
#include "launcher/agent_state/stop_in_progress.hpp"

namespace ddprun {

struct EndFacts {
  const RoundWorkers& workers;
  const StopInProgress& stop;
  const JudgedRound& round;
  bool round_is_over = false;                    // true in phase kSweeping, when all workers of the round have exited
  std::optional<rendezvous::Verdict> verdict{};  // set after the restart policy has judged the first failure
};

struct JobEnding {
  int exit_code = 0;
  std::string why;  // the last message that the job prints
  // The reason why no round follows; set if the failure of the round must be reported.
  std::optional<std::string> round_failed{};
  bool abandons = false;  // true: the agent exits without waiting for a process that cannot be killed
};

// Returns nullopt if the job does not end, or if the restart policy must decide. In the second case the caller must call this
// function again with `verdict`.
std::optional<JobEnding> ending_of(const EndFacts& facts);

// Returns how the round has ended on one node of a multi-node job: done, saved or ended.
agent_action::ReportRoundOver::How round_end_of(const EndFacts& facts);

}  // namespace ddprun
