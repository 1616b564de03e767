// The state that a node must keep on disk (as in Raft): its term, vote and rounds, and the candidates for the next election.
// The member updates the record; the shell's record file writes it to disk.
#pragma once

#include <cstddef>
#include <vector>

#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

// The record must survive a restart of the agent under the same node id. If the record is lost, the node could contradict its
// earlier votes, so it must use a new id. The record changes about once per round and once per vote. A message that depends on
// a change may be sent only after the change is on disk (record_gate.hpp).
struct Record {
  PersistentState state{};
  Successor coordinator{};
  std::vector<Successor> successors{};
  Roster roster{};  // the nodes of the newest round that this node released when it was the coordinator
  // True if a job of this name might still be running elsewhere, but this node has recorded no round of that job. There are
  // three cases: the node followed the coordinator of that job before the first round, the node has left that job, or the
  // record of the node was lost.
  bool job_elsewhere = false;
  // True if the record file was created in a new place, for example in a new container. An earlier invocation on this machine
  // may then have lost its record. So an empty record does not prove that no job is running. The value is false after the
  // first release.
  bool place_is_new = false;
  bool knows_round() const { return state.current.exists() || !roster.nodes.empty(); }
};

// Returns the coordinator and the successors in the record, except the node `self`. The function compares node ids and not
// addresses, because the record may contain an address of this node that the node itself cannot determine.
std::vector<Successor> others_of(const Record& record, const NodeId& self);

// Converts a release into the round that its receiver records.
Config config_of(const Release& release);

// Returns true if this node is in a two-node round and is not a majority alone. It is not a majority alone if it has group
// rank 1, or if the round has an arbiter.
bool is_other_of_two(const Record& record);

// Returns the node's position among the candidates if the coordinator is lost. 0 is the last coordinator, 1 the first
// successor. kSuccessors + 1 means that the node is not a candidate.
std::size_t candidate_rank(const Record& record, const NodeId& self);

}  // namespace ddprun::rendezvous
