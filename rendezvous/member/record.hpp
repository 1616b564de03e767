// What a node remembers of its job: where it stands, and who would lead when the coordinator is gone. The member keeps it up to
// date, the shell's record file writes it to disk.
#pragma once

#include <cstddef>
#include <vector>

#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

// What must survive a restart of the agent under the same identity, for as long as the machine is up: without it the node must
// take a new identity. Small and rare: once a round and once a vote. It must be written before what follows it is sent.
struct Record {
  Standing standing{};
  Successor coordinator{};
  std::vector<Successor> successors{};
  Roster roster{};  // of the newest round that this node released
  // A job of this name may run elsewhere, of which this node knows no round: it followed its coordinator, left it, or what it
  // knew was lost.
  bool job_elsewhere = false;
  // Where this node started first, nothing of earlier starts could have been kept, and it has found nobody who says since
  // whether there is a job.
  bool place_is_new = false;
  bool knows_round() const { return standing.current.exists() || !roster.nodes.empty(); }
};

// The coordinator and its successors without `self`, whose own address as others see it may be none that it knows as its own.
std::vector<Successor> others_of(const Record& record, const NodeId& self);

// The round as whoever hears this release remembers it.
Config config_of(const Release& release);

// Of two nodes, the one without group rank 0 cannot go on by itself; where an arbiter decides, neither can.
bool is_other_of_two(const Record& record);

// 0: first in line, when the coordinator is lost; kSuccessors + 1: not named.
std::size_t place_in_line(const Record& record, const NodeId& self);

}  // namespace ddprun::rendezvous
