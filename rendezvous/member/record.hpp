// What a node remembers of its job (Raft's persistent state): its term, vote and rounds, and the next candidates when the
// coordinator is lost. The member keeps it up to date, the shell's record file writes it to disk.
#pragma once

#include <cstddef>
#include <vector>

#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

// It must survive a restart of the agent under the same identity while the machine is up; without it the node must take a new
// identity. It is small and seldom changes: once a round and once a vote. It must be written before the messages that depend on
// it are sent.
struct Record {
  PersistentState state{};
  Successor coordinator{};
  std::vector<Successor> successors{};
  Roster roster{};  // of the newest round that this node released
  // A job of this name may run elsewhere, of which this node knows no round: the node followed its coordinator, has left it, or
  // has lost its record.
  bool job_elsewhere = false;
  // Where this node started first, nothing of earlier starts could have been kept, and it has found nobody who says since
  // whether there is a job.
  bool place_is_new = false;
  bool knows_round() const { return state.current.exists() || !roster.nodes.empty(); }
};

// The coordinator and its successors without `self`: other nodes may see this node under an address that it does not know as
// its own.
std::vector<Successor> others_of(const Record& record, const NodeId& self);

// The round as a node that gets this release remembers it.
Config config_of(const Release& release);

// In a round of two, the node without group rank 0 cannot continue alone; if an arbiter decides, neither node can.
bool is_other_of_two(const Record& record);

// 0: the first candidate when the coordinator is lost; kSuccessors + 1: not a candidate.
std::size_t place_in_line(const Record& record, const NodeId& self);

}  // namespace ddprun::rendezvous
