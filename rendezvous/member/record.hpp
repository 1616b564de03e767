// A node's persistent state of its job (as in Raft): its term, vote and rounds, and the next candidates if the coordinator is
// lost. The member updates it; the shell's record file writes it to disk.
#pragma once

#include <cstddef>
#include <vector>

#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

// It must survive a restart of the agent under the same identity while the machine is up. Without it the node must take a new
// identity. It is small and rarely changes: once per round and once per vote. It must be written before the messages that
// depend on it are sent.
struct Record {
  PersistentState state{};
  Successor coordinator{};
  std::vector<Successor> successors{};
  Roster roster{};  // nodes of the newest round that this node released
  // A job of this name may run elsewhere, and this node knows no round of it. Either the node followed its coordinator, or has
  // left the job, or has lost its record.
  bool job_elsewhere = false;
  // This node started here for the first time, where earlier starts could not have kept a record. It has not yet found a node
  // that knows whether there is a job.
  bool place_is_new = false;
  bool knows_round() const { return state.current.exists() || !roster.nodes.empty(); }
};

// The coordinator and its successors without `self`. Needed since other nodes may see this node under an address that it does
// not know as its own.
std::vector<Successor> others_of(const Record& record, const NodeId& self);

// The round of this release, as its receiver records it.
Config config_of(const Release& release);

// True in a round of two for the node without group rank 0: it cannot continue alone. If an arbiter decides, it is true for
// both nodes.
bool is_other_of_two(const Record& record);

// 0: the first candidate after a loss of the coordinator; kSuccessors + 1: not a candidate.
std::size_t place_in_line(const Record& record, const NodeId& self);

}  // namespace ddprun::rendezvous
