// How a worker outlives the loss of another one: the agent orders a regroup over the worker channel, which breaks the group
// whatever this worker is doing; its main thread comes out with an exception, asks here whether that is the reason, and makes
// the next group (worker.cpp). Without an agent of ours nobody could start the lost worker again, and there is no Recovery.
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
  // `generation`: of this process' first group, the restart count that it was started with; a standby's comes with its rank, in
  // TakeOver. `world`: the size of the groups.
  Recovery(int generation, int world) : breaker_(world), started_with_(generation), newest_(generation) {}

  // On the reader thread; orders may come before attach().
  void on_message(const channel::FromAgent& message);
  void attach(AgentChannel& channel) { channel_ = &channel; }

  // The group to be made now; the one before must be gone. `step`: of the state held here, -1: none. It is reported when the
  // group was ordered; one that this process was started for needs no word.
  int begin_group(std::int64_t step);

  GroupBreaker& breaker() { return breaker_; }

  // What ended the group: true when a newer one is ordered, or a peer was lost and the order comes. False: the error is this
  // worker's own, or nobody has said anything for a while, or the agent is gone.
  bool survives(const std::exception_ptr& error);

 private:
  bool ordered() const { return newest_ > current_; }

  GroupBreaker breaker_;
  AgentChannel* channel_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  int started_with_;
  int newest_;
  int current_ = -1;
};

}  // namespace ddprun::trainer
