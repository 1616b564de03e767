// Live recovery: a worker survives the loss of another worker and keeps its training state.
//
// In data-parallel training each rank holds the whole training state, so a lost rank destroys none of it. A restart of all
// workers from the newest checkpoint repeats the steps since that checkpoint, and starts every process again. The survivors
// only need a new process group. There are three problems:
//
//   - A survivor is blocked in a collective, and Gloo has no abort. If it waits for another survivor, it waits until the
//     timeout.
//   - The exception that ends the collective does not identify the cause. "Connection closed by peer" is the message both if a
//     worker has died and if we have aborted the collective.
//   - A survivor can itself fail at the same time. If it ran out of memory, it must exit, even if a new group was requested.
//
// The agent detects which process has ended, so only the agent requests a new group. The request is the message Regroup. It
// contains the number of the new group, which is called the generation. In the worker, the reader thread of the worker channel
// records the request and aborts the old group (group_breaker.hpp). This works even if the main thread is blocked in a
// collective. The main thread then catches the exception of the collective and calls survives(). Example: generation 3, 120
// finished steps.
//
//   agent                      reader thread             main thread
//   Regroup{4}            -->  records 4, breaks group   all-reduce throws "Connection closed by peer"
//                                                        survives(): 4 is newer than 3, so true
//                                                        the caller undoes the half step and leaves the group
//   RegroupReady{4, 120}  <--                            begin_group(120) returns generation 4
//
// The request and the exception race: the connection to a dead worker may close before the request arrives. So after
// "Connection closed by peer" and similar errors, survives() waits for the request, 30 s at most. Any other error counts as a
// consequence of the loss only if a request has already arrived. In a multi-node job, the agent receives the new ranks only
// later, from the coordinator. It then sends Hold first: the worker leaves its group and waits in begin_group() for Regroup.
//
// Cost: each step copies the model's buffers, so that an incomplete step can be undone. With NCCL, an aborted collective looks
// like a collective that has succeeded. So each step also waits for the device before the weights change. If a Gloo collective
// does not return, its group and its threads remain until the process exits.
//
// For NCCL we tried a flag in mapped memory, with which fused optimizers skip queued updates. The weights then differed from
// the weights of a fault-free run, so we removed the flag (docs/internals/decisions/recovery/nccl-live.md). We killed workers
// on one machine 200 times, at random moments: the results were bit-identical to the results of a fault-free run
// (live-by-default.md, in the same folder).
//
// The loop over process groups is in trainer/life/worker.cpp and trainer/library/job.cpp. Under torchrun, srun and mpirun no
// agent can replace a lost worker, so this class is not used. on_message() and on_agent_gone() are called on the reader thread,
// all other functions on the main thread.
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
  // `generation` is the number of this process's first group. A standby (a worker that was started without a rank) receives
  // this number later, in AssignRank. `world` is the number of ranks in the group.
  Recovery(int generation, int world) : breaker_(world), first_generation_(generation) { newest_.generation = generation; }

  // Call this on the reader thread of the worker channel. The call may come before attach().
  void on_message(const channel::FromAgent& message);
  void on_agent_gone();
  void attach(AgentChannel& channel) { channel_ = &channel; }

  // Returns the next group, which contains the new rank of this worker (-1 if unchanged). Destroy the previous group before
  // the call. After a Hold message, blocks until a Regroup message arrives. `step` is the number of finished steps in this
  // worker's training state; -1 if the state is not complete. It is reported to the agent, except for the group for which this
  // process was started. Throws std::runtime_error if the agent exits while this call blocks.
  channel::Regroup begin_group(std::int64_t step);

  GroupBreaker& breaker() { return breaker_; }

  // Returns whether `error` is a consequence of a lost worker, so that this worker can continue in the next group. This is the
  // case if the agent has requested a newer group (message Regroup) or a wait (message Hold). If `error` is a closed
  // connection to another worker, the call waits for such a message. Returns false if the error has another cause, such as
  // lack of memory, if no message arrives in time, or if the agent has exited. Also returns false before the first group,
  // because each retry would fail in the same way.
  bool survives(const std::exception_ptr& error);

 private:
  // Returns true if the agent has requested that this worker waits (Hold) or joins a newer group (Regroup). The result ignores
  // the group for which this process was started.
  bool ordered() const { return held_ || newest_.generation > (joined_ ? current_ : first_generation_); }

  GroupBreaker breaker_;
  AgentChannel* channel_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  int first_generation_;
  channel::Regroup newest_;
  int current_ = -1;
  bool joined_ = false;  // true after begin_group() has returned once
  bool held_ = false;
  bool agent_gone_ = false;
};

}  // namespace ddprun::trainer
