// How a worker outlives the loss of another one: the agent orders a regroup over the worker channel, which breaks the group
// whatever this worker is doing; its main thread comes out with an exception, asks here whether that is the reason, and makes
// the next group (trainer/life/worker.cpp). On many machines it is held first, until it is known who is in the next group.
// Without an agent of ours nobody could start the lost worker again, and there is no Recovery.
//
// Thread-safe: the channel's reader thread orders, the main thread asks.
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
  // `generation`: of this process' first group, with which it was started; a standby's comes with its rank, in AssignRank.
  // `world`: the size of the groups.
  Recovery(int generation, int world) : breaker_(world), started_with_(generation) { newest_.generation = generation; }

  // On the reader thread; orders may come before attach().
  void on_message(const channel::FromAgent& message);
  void on_agent_gone();
  void attach(AgentChannel& channel) { channel_ = &channel; }

  // The group to be made now, and this worker's place in it where that is a new one; the group before must be gone. Waits while
  // this worker is held. `step`: of the state held here, -1: none. It is reported when the group was ordered; one that this
  // process was started for needs no word. Throws std::runtime_error when the agent is gone meanwhile.
  channel::Regroup begin_group(std::int64_t step);

  GroupBreaker& breaker() { return breaker_; }

  // What ended the group: true when a newer one is ordered or is to be waited for, or a peer was lost and the order comes.
  // False: the error is this worker's own, or no order came in time, or the agent is gone. Before the first group every error
  // is this worker's own: a retry would meet it again.
  bool survives(const std::exception_ptr& error);

 private:
  // Before the first group an order is one that is newer than the group this process was started for.
  bool ordered() const { return held_ || newest_.generation > (joined_ ? current_ : started_with_); }

  GroupBreaker breaker_;
  AgentChannel* channel_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  int started_with_;
  channel::Regroup newest_;
  int current_ = -1;
  bool joined_ = false;  // begin_group() has returned once
  bool held_ = false;
  bool agent_gone_ = false;
};

}  // namespace ddprun::trainer
