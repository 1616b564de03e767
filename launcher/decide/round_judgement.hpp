// What became of each worker of a round that is over: who failed, who only followed, and why. Pure functions of what the agent
// knows of its workers; AgentState asks them. What to do about it is the restart policy's
// (launcher/verdict/restart_policy.hpp).
#pragma once

#include <cstdint>
#include <span>

#include "launcher/decide/worker_record.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/verdict/restart_policy.hpp"

namespace ddprun {

struct JudgedRound {
  int number = 0;
  int rank_offset = 0;                      // global rank of the first worker
  bool workers_have_channel = false;        // they are ddptrain's
  bool job_has_trained = false;             // with the same config and command line, before this worker or beside it
  std::span<const WorkerRecord> workers{};  // by local rank
};

// How likely a worker's failure is the first cause; the smaller, the likelier. Within a class the earlier failure is the cause.
enum class Blame {
  kFailed,              // by itself, before anybody asked it to stop; or it hangs
  kFailedWhileStopped,  // asked to stop, but its end was its own: it says why, nobody sent that signal, or it has none
  kLostPeer,            // it says that another worker was gone
  kStopped,             // it ended because it was told to
};

bool has_failed(const WorkerRecord& worker);

Blame blame_of(const WorkerRecord& worker, bool has_channel);

// The failure of that local rank, which has failed.
Failure failure_of(const JudgedRound& round, int rank);

// Who failed, the first cause first. At least one worker has failed. The decision is kGiveUp until somebody decides.
RoundFailed judge_round(const JudgedRound& round, std::int64_t now_ns);

// What the restart policy needs of the first cause; checkpoints and times are left to the caller.
FailedRound record_of(const JudgedRound& round, const Failure& first);

}  // namespace ddprun
