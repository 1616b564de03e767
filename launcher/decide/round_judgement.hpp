// What happened to each worker of a round that is over: which failed by itself, which only followed, and why. Pure functions of
// what the agent knows about its workers; AgentState calls them. The judge (launcher/verdict/job_judge.hpp) decides what
// follows.
#pragma once

#include <cstdint>
#include <span>

#include "launcher/decide/worker_record.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/verdict/restart_policy.hpp"

namespace ddprun {

struct JudgedRound {
  int number = 0;
  int rank_offset = 0;                // the global rank of the first worker
  bool workers_have_channel = false;  // they are ddptrain's workers
  bool job_has_trained = false;  // ddptrain or a loop in C++, with the same command line, before this worker or in parallel
  std::span<const WorkerRecord> workers{};  // by local rank
};

// How likely a worker's failure is the first cause; the smaller, the likelier. Within a class the earlier failure is the cause.
enum class Blame {
  kFailed,              // by itself, before it was asked to stop; or it hangs
  kFailedWhileStopped,  // after it was asked to stop, but by itself: it says why, or the signal was not ours, or there was none
  kLostPeer,            // it says that another worker is gone
  kStopped,             // it ended because it was told to
};

bool has_failed(const WorkerRecord& worker);

Blame blame_of(const WorkerRecord& worker, bool has_channel);

// The failure of that local rank, which has failed.
Failure failure_of(const JudgedRound& round, int rank);

// The failures of the round, the first cause first. At least one worker has failed. The decision is kGiveUp until the policy
// decides.
RoundFailed judge_round(const JudgedRound& round, std::int64_t now_ns);

// What the restart policy must know of the first cause; the caller adds checkpoints and times.
FailedRound record_of(const JudgedRound& round, const Failure& first);

}  // namespace ddprun
