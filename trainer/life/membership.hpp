// This worker's place among the others: its rank and its records, its current group, and the change from one group to the next.
// Worker calls join() before each attempt to train, and leave() after the loss of a peer. Orders of the agent in the meantime
// go to Recovery. There is one group at a time. Everything made from its peers() must be destroyed before leave().
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

  // Forms the group with the others, in the place that the agent assigns. `held`: number of finished steps of the state that
  // this rank could send to them. Throws UsageError if this number of ranks cannot share a batch, and what the process group
  // throws for a lost peer.
  void join(std::optional<std::int64_t> held);
  // Ends a group that lost a peer. Needs an agent, since otherwise there is no next group. The records stay: a checkpoint that
  // is being written does not depend on the group.
  void leave() { process_.place().leave_group(); }

  // Ends the group in order, after the last collective, when nothing uses the group any more.
  void shut_down() { process_.place().shut_down(); }

  // Valid between join() and leave().
  const Peers& peers() const { return process_.place().peers(); }
  // Generation of that group: the round in a multi-node job, else the restart count.
  int generation() const { return process_.place().generation(); }
  RankRecords& records() { return records_; }
  // Whether threads remain that use LibTorch. If so, the process must not run LibTorch's static destructors.
  bool left_groups_behind() const { return process_.place().left_groups_behind(); }

 private:
  void move_to(const channel::Regroup& order);

  Process& process_;
  RankRecords records_;
};

}  // namespace ddprun::trainer
