#include "rendezvous/member/record.hpp"

namespace ddprun::rendezvous {

std::vector<Successor> others_of(const Record& record, const NodeId& self) {
  if (!record.state.current.exists()) return {};
  std::vector<Successor> nodes{record.coordinator};
  nodes.insert(nodes.end(), record.successors.begin(), record.successors.end());
  std::erase_if(nodes, [&](const Successor& node) { return node.node == self; });
  return nodes;
}

Config config_of(const Release& release) {
  return {.id = release.id,
          .born = release.born,
          .nodes = release.nodes,
          .rank = release.group_rank,
          .arbiter = release.arbiter,
          .founder = release.founder};
}

bool is_other_of_two(const Record& record) {
  const Config& round = record.state.current;
  return round.nodes == 2 && (round.rank == 1 || round.has_arbiter());
}

std::size_t candidate_rank(const Record& record, const NodeId& self) {
  if (record.coordinator.node == self) return 0;
  for (std::size_t i = 0; i < record.successors.size(); ++i) {
    if (record.successors[i].node == self) return i + 1;
  }
  return kSuccessors + 1;
}

}  // namespace ddprun::rendezvous
