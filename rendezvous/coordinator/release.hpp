// The release of a round: which node gets which ranks, and the message for each node. The coordinator calls these functions one
// after the other when it forms a round. Pure functions over its peers; they change nothing.
#pragma once

#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/presence/membership.hpp"
#include "rendezvous/presence/peers.hpp"
#include "rendezvous/presence/placement.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

struct PlacedNodes {
  std::vector<Peer*> by_rank;  // the index is the group rank; nullptr: the rank is not taken
  Placement placement;
};

// Order: this node, then the nodes of the last round, then the others by arrival.
PlacedNodes place_ready(Peers& peers, const CoordinatorSettings& settings);

// The nodes of the round, to be recorded before it is released.
Roster roster_of(const PlacedNodes& placed, const Config& round);

// The number of round 0, raised if one of these nodes already has a round with such a number in its run directory. So a round
// has the same number on all nodes, whether they share a run directory or not, and no round overwrites an earlier one.
std::int32_t first_number_of(const PlacedNodes& placed, const Config& round, std::int32_t before);

// The part of the release that is equal for all nodes. Call it after the peers have got their ranks.
Release common_release(const PlacedNodes& placed, const Config& round, const Budget& budget,
                       const CoordinatorSettings& settings);

// Adds the node's own ranks, in this round and the previous one, to that release.
Release release_for(const Peer& peer, const Release& common, const Config& previous);

// The arbiter of a round of these two nodes: the one on which both agree, if there is one. It decides if they lose contact.
Arbitrated arbitrated(const PlacedNodes& placed, const CoordinatorSettings& settings);

// Entrusts this node's guardian with a farewell, if this node has group rank 0 in a round of two. The guardian sends it to the
// other node when this agent and its workers are dead. Without it, the other node alone would be no majority.
coordinator_action::Entrust farewell_for(const PlacedNodes& placed, const Config& round, const CoordinatorSettings& settings);

// Sends the release to all nodes. Nodes with a rank get it first, in the order of ranks: so the successors have it if this node
// dies at this moment. The spares get it last.
void send_release(const PlacedNodes& placed, const Release& common, const Config& previous, Peers& peers, Outbox& outbox);

}  // namespace ddprun::rendezvous
