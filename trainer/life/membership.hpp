// This worker's place among the others: its rank and what belongs to it, the group that it is in, and the way from one group to
// the next. Worker joins before each attempt to train and leaves when a peer was lost; what the agent orders meanwhile is
// Recovery's. One group at a time: everything made of its peers() is gone before leave().
#pragma once

#include <cstdint>
#include <optional>

#include "common/channel/message.hpp"
#include "trainer/life/process.hpp"
#include "trainer/life/rank_records.hpp"
#include "trainer/parallel/peers.hpp"

namespace ddprun::trainer {

class Membership {
 public:
  explicit Membership(Process& process) : process_(process) {}

  // Makes the group with the others, at the place that the agent gives where that is a new one. `held`: finished steps of the
  // state that this rank could give them. Throws UsageError when so many can't share a batch, and what the process group throws
  // for a lost peer.
  void join(std::optional<std::int64_t> held);
  // Ends a group that lost a peer. Needs an agent: without one there is no next group. A checkpoint that is being written is
  // none of the group's business, so the records stay.
  void leave() { process_.place().leave_group(); }

  // Ends the group in order, when all have met for the last time and nothing uses it any more.
  void shut_down() { process_.place().shut_down(); }

  // Between join() and leave().
  const Peers& peers() const { return process_.place().peers(); }
  // Of that group: the round on many machines, else the restart count.
  int generation() const { return process_.place().generation(); }
  RankRecords& records() { return records_; }
  // Threads are left that use LibTorch: this process must not take it apart.
  bool left_groups_behind() const { return process_.place().left_groups_behind(); }

 private:
  void move_to(const channel::Regroup& order);

  Process& process_;
  RankRecords records_;
};

}  // namespace ddprun::trainer
