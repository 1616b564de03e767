// The release starts a round (one start of all workers). These functions decide which node gets which ranks, and build the
// Release message for each node. The coordinator calls them in the order of this file. The functions are pure and do not change
// the peers.
#pragma once

#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/membership/membership.hpp"
#include "rendezvous/membership/peers.hpp"
#include "rendezvous/membership/placement.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

struct PlacedNodes {
  std::vector<Peer*> by_rank;  // the node of each group rank; nullptr if no node has the rank
  Placement placement;
};

// Assigns ranks to the ready nodes. The coordinator's node is placed first, then the nodes of the last round by rank, then the
// new nodes in the order of their arrival. Reserve nodes that are not needed get no rank (reserves.hpp).
PlacedNodes place_ready(Peers& peers, const CoordinatorSettings& settings);

// Returns the nodes of the round by rank. The coordinator must record this roster before it sends a release.
Roster roster_of(const PlacedNodes& placed, const Config& round);

// Returns the displayed number of round 0; later rounds count up from this number. The result is at least `before`. It is
// large enough that the number of this round is unused in the run directories of all nodes. So a round has the same number on
// every node, and no round overwrites the files of an earlier round.
std::int32_t first_number_of(const PlacedNodes& placed, const Config& round, std::int32_t before);

// Builds the fields of the Release message that are equal for all nodes. Call this after Membership has set the ranks of the
// peers.
Release common_release(const PlacedNodes& placed, const Config& round, const Budget& budget,
                       const CoordinatorSettings& settings);

// Copies `common`, and adds the node's group ranks in this round and in the previous round.
Release release_for(const Peer& peer, const Release& common, const Config& previous);

// Returns the arbiter of a two-node round, if both nodes use the same arbiter. If the two nodes lose contact, the arbiter
// decides which node continues.
Arbitrated arbitrated(const PlacedNodes& placed, const CoordinatorSettings& settings);

// Returns the death notice for this node's guardian process, if this node has group rank 0 in a two-node round. When this
// agent and all its workers have ended, the guardian sends the notice to the other node. Without the notice, the other node
// alone is not a majority and must stop.
coordinator_action::SetDeathNotice death_notice_for(const PlacedNodes& placed, const Config& round,
                                                    const CoordinatorSettings& settings);

// Sends the release to all nodes: first to the nodes with a rank, by rank, then to the spares. If this node dies before it has
// finished, the possible next coordinators already have the release.
void send_release(const PlacedNodes& placed, const Release& common, const Config& previous, Peers& peers, Outbox& outbox);

}  // namespace ddprun::rendezvous
