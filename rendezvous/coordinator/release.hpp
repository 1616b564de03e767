// The release of a round: which node gets which ranks, and what each node is told of it. The coordinator calls these one after
// the other when it forms a round. Pure functions over its peers; they change nothing.
#pragma once

#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/presence/membership.hpp"
#include "rendezvous/presence/peers.hpp"
#include "rendezvous/presence/placement.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

struct PlacedNodes {
  std::vector<Peer*> by_rank;  // index = group rank; nullptr: nobody has it
  Placement placement;
};

// Places the nodes that are ready: this node first, then those of the last round, then by arrival.
PlacedNodes place_ready(Peers& peers, const CoordinatorSettings& settings);

// Who is in the round, to be remembered before it is released.
Roster roster_of(const PlacedNodes& placed, const Config& round);

// The number of round 0, raised where one of these nodes has kept rounds of that number already. So a round has the same number
// on all nodes, whether they share a run directory or not, and none writes over an earlier one.
std::int32_t first_number_of(const PlacedNodes& placed, const Config& round, std::int32_t before);

// What is the same for everybody. The peers have their ranks by now.
Release common_release(const PlacedNodes& placed, const Config& round, const Budget& budget,
                       const CoordinatorSettings& settings);

// The same with the node's own ranks in this round and the one before.
Release release_for(const Peer& peer, const Release& common, const Config& previous);

// Of a round of these nodes, as far as they agree on one: who decides between two of which each may go on alone.
Arbitrated arbitrated(const PlacedNodes& placed, const CoordinatorSettings& settings);

// To the other node of two, when this one has group rank 0: alone, the other would be no majority.
coordinator_action::Entrust farewell_for(const PlacedNodes& placed, const Config& round, const CoordinatorSettings& settings);

// Sends it to all: those with a rank in the order of group ranks, so that successors, who are needed if this node dies just
// now, know first; and then the spares.
void send_release(const PlacedNodes& placed, const Release& common, const Config& previous, Peers& peers, Outbox& outbox);

}  // namespace ddprun::rendezvous
