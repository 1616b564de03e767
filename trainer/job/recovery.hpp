// Live recovery: a worker survives the loss of another worker and keeps its training state.
//
// In data-parallel training each rank holds the whole training state, so a lost rank destroys none of it. A restart of all
// workers from the newest checkpoint repeats the steps since then and starts every process again. The survivors only need a new
// process group. Three things stand in the way:
//
//   - A survivor waits inside a collective, and Gloo has no abort. A rank that waits for a living rank waits until its timeout.
//   - The exception that ends the collective does not say why. "Connection closed by peer" comes from a dead peer and from our
//     own abort.
//   - A worker can have an error of its own at the same time. A worker that ran out of memory must end, whatever is ordered.
//
// The agent knows which process ended, so only the agent orders a new group. The order is Regroup with the group's number, its
// generation. The reader thread of the worker channel records the order and breaks the group (group_breaker.hpp). It does so
// whatever the main thread does. The main thread catches the exception and calls survives(). Example: generation 3, 120
// finished steps.
//
//   agent                      reader thread             main thread
//   Regroup{4}            -->  records 4, breaks group   all-reduce throws "Connection closed by peer"
//                                                        survives(): 4 is newer than 3, so true
//                                                        the caller undoes the half step and leaves the group
//   RegroupReady{4, 120}  <--                            begin_group(120) returns generation 4
//
// The order and the exception race: the connection of a dead peer may close before the order arrives. So survives() waits for
// the order after a lost peer, 30 s at most. Any other error counts as a consequence only if an order has already arrived. On
// many machines only the coordinator's next release knows the new ranks. There the agent sends Hold first: the worker leaves
// its group and waits in begin_group() for Regroup.
//
// Cost: each step copies the model's buffers, so that a half step can be undone. With NCCL an aborted collective looks like one
// that has ended. So each step also waits for the device before the weights change. A Gloo collective that does not end leaves
// its group and its threads behind until the process ends.
//
// We tried a gate for NCCL, a flag in mapped memory with which fused optimizers skip queued updates. It gave weights that no
// undisturbed run has, and we removed it (docs/internals/decisions/recovery/nccl-live.md). We killed workers on one machine 200
// times, at random moments: the runs ended with the bits of an undisturbed run (live-by-default.md, same folder).
//
// trainer/life/worker.cpp and trainer/library/job.cpp have the loop over groups. Under torchrun, srun and mpirun no agent can
// replace a lost worker, so there is no Recovery. on_message() and on_agent_gone() run on the reader thread, all else on the
// main thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

#include "common/channel/message.hpp"
#include "trainer/parallel/group_breaker.hpp"

namespace ddprun::trainer {

class AgentChannel;

class Recovery {
 public:
  // `generation`: number of this process's first group. A standby receives it later, with its rank, in AssignRank. `world`:
  // number of ranks in the group.
  Recovery(int generation, int world) : breaker_(world), started_with_(generation) { newest_.generation = generation; }

  // Called on the reader thread. Orders may arrive before attach().
  void on_message(const channel::FromAgent& message);
  void on_agent_gone();
  void attach(AgentChannel& channel) { channel_ = &channel; }

  // Returns the next group, and the new place of this worker in it (rank -1: the rank stays). The previous group must be
  // destroyed before the call. Blocks while this worker is held. `step`: finished steps of the state that this worker holds, -1
  // if it holds none. The step is reported to the agent, except for the group for which this process was started. Throws
  // std::runtime_error if the agent is gone while this worker is held.
  channel::Regroup begin_group(std::int64_t step);

  GroupBreaker& breaker() { return breaker_; }

  // Whether `error` is a consequence of a lost peer, so that this worker continues in the next group. True if a newer group or
  // a hold is ordered; after a lost peer it waits for that order. False if the error is this worker's own, no order arrives in
  // time or the agent is gone. Before the first group every error is this worker's own: a retry would fail in the same way,
  // again and again.
  bool survives(const std::exception_ptr& error);

 private:
  // The group for which this process was started is not a new order.
  bool ordered() const { return held_ || newest_.generation > (joined_ ? current_ : started_with_); }

  GroupBreaker breaker_;
  AgentChannel* channel_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  int started_with_;
  channel::Regroup newest_;
  int current_ = -1;
  bool joined_ = false;  // begin_group() has returned at least once
  bool held_ = false;
  bool agent_gone_ = false;
};

}  // namespace ddprun::trainer
