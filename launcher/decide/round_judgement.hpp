// Finds the first cause of a round's failure: which workers failed by themselves, which failed as a consequence, and why. These
// are pure functions over the agent's records of its workers; AgentState calls them. The judge (launcher/verdict/job_judge.hpp)
// decides what follows.
#pragma once

#include <cstdint>
#include <span>

#include "launcher/decide/worker_record.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/verdict/restart_policy.hpp"

namespace ddprun {

struct JudgedRound {
  int number = 0;
  int rank_offset = 0;                      // the global rank of the first worker
  bool workers_have_channel = false;        // the workers run ddptrain
  bool job_has_trained = false;             // by ddptrain or a loop in C++, with the same command line, earlier or in parallel
  std::span<const WorkerRecord> workers{};  // by local rank
};

// How likely a worker's failure is the first cause; the smaller, the likelier. Within a class the earlier failure is the cause.
enum class Blame {
  kFailed,              // failed by itself before it was asked to stop, or hangs
  kFailedWhileStopped,  // failed after it was asked to stop, but not because of that: an error report, another signal, or an
                        // exit code
  kLostPeer,            // reported that another worker is gone
  kStopped,             // ended because it was asked to stop
};

bool has_failed(const WorkerRecord& worker);

Blame blame_of(const WorkerRecord& worker, bool has_channel);

// Describes the failure of a local rank. The worker must have failed.
Failure failure_of(const JudgedRound& round, int rank);

// Returns the failures of the round, the first cause first. At least one worker must have failed. The decision is kGiveUp until
// the policy decides.
RoundFailed judge_round(const JudgedRound& round, std::int64_t now_ns);

// Facts that the restart policy needs about the first cause. The caller adds checkpoints and times.
FailedRound record_of(const JudgedRound& round, const Failure& first);

}  // namespace ddprun
