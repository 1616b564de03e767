// Determines the reserves of a job: nodes on hosts that failed often in the last days (--exclude-failing-nodes). A reserve is
// a spare that joins a round only if fewer than min_nodes other nodes are ready. So a reserve is excluded whenever --nnodes
// MIN:MAX allows it. The coordinator calls these functions. They are pure: no I/O, no clock.
//
// Two kinds of nodes are never reserves. The coordinator's own node must take part in the round, because it leads the job. A
// node of the current round may have the training state, and its vote counts. So it keeps its rank until it is lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

inline bool is_reserve(const Peer& peer, const CoordinatorSettings& settings) {
  return !settings.failing_hosts.empty() && settings.min_nodes < settings.max_nodes && peer.rank < 0 &&
         peer.hello.node != settings.self && settings.failing_hosts.contains(peer.hello.hostname);
}

inline std::int64_t ready_reserves(const Peers& peers, const CoordinatorSettings& settings) {
  if (settings.failing_hosts.empty()) return 0;  // in the usual case, no pass over the nodes is necessary
  return std::ranges::count_if(peers.all(), [&](const auto& each) {
    return each.second.connected() && each.second.ready && is_reserve(each.second, settings);
  });
}

// Removes the reserves that the next round does not need. `nodes` are sorted by preference, and keep their order.
inline void drop_unneeded_reserves(std::vector<Peer*>& nodes, const CoordinatorSettings& settings) {
  const auto others = std::ranges::count_if(nodes, [&](const Peer* peer) { return !is_reserve(*peer, settings); });
  std::int64_t needed = std::max<std::int64_t>(0, settings.min_nodes - others);
  std::erase_if(nodes, [&](const Peer* peer) { return is_reserve(*peer, settings) && needed-- <= 0; });
}

}  // namespace ddprun::rendezvous
