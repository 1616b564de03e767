// The part of World (simulated_world.hpp) that looks at every event for what must never be.
#include <algorithm>
#include <utility>

#include "rendezvous/wire/codec.hpp"
#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {

// One coordinator a term.
void World::check_coordinator(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  const Coordinator* coordinator = agent.node->coordinator();
  if (coordinator == nullptr) {
    agent.coordinates = false;
    return;
  }
  if (agent.coordinates && agent.term_seen == coordinator->term()) return;
  if (!agent.coordinates) ++result_.successions;
  agent.coordinates = true;
  agent.term_seen = coordinator->term();
  tell(name(index) + " coordinates term " + std::to_string(agent.term_seen));
  const auto [known, is_new] = leader_of_term_.try_emplace(agent.term_seen, index, agent.life);
  if (!is_new && known->second != std::pair(index, agent.life)) {
    violate("term " + std::to_string(agent.term_seen) + " has two coordinators: agents " + std::to_string(known->second.first) +
            " and " + std::to_string(index));
  }
}

// Every node hears the same of a round, each rank is given once, and they are contiguous.
void World::note_release(int index, std::uint32_t life, const Release& release, int coordinator) {
  Round& round = rounds_[release.id];
  if (round.coordinator < 0) {
    released_.push_back(release.id);
    round.coordinator = coordinator;
    round.leadership = agents_[static_cast<std::size_t>(coordinator)].life;
    round.first = release;
    if (release.budget.restart_count > max_restarts_) {
      violate("round " + name(release.id) + " is restart " + std::to_string(release.budget.restart_count) + " of at most " +
              std::to_string(max_restarts_));
    }
    for (const auto& [id, other] : rounds_) {
      if (other.full && id < release.id && other.first.budget.restart_count > release.budget.restart_count) {
        violate("round " + name(release.id) + " forgets restarts of round " + name(id));
      }
    }
  }
  const Release& first = round.first;
  if (first.nodes != release.nodes || first.world_size != release.world_size || first.master != release.master ||
      first.budget.restart_count != release.budget.restart_count) {
    violate("nodes were told different things of round " + name(release.id));
  }
  if (release.group_rank < 0 || release.group_rank >= release.nodes) {
    violate("round " + name(release.id) + " has group rank " + std::to_string(release.group_rank) + " of " +
            std::to_string(release.nodes));
  }
  const auto [member, is_new] = round.members.try_emplace(release.group_rank, index);
  if (!is_new && member->second != index) violate("round " + name(release.id) + " gives a rank twice");
  round.offsets[release.group_rank] = release.rank_offset;
  round.lives[release.group_rank] = life;
  if (std::ssize(round.members) != release.nodes || !is_new) return;
  std::int32_t next = 0;
  std::set<std::pair<int, std::uint32_t>> seen;  // a process that is gone and its successor may both be in it for a moment
  for (const auto& [rank, agent] : round.members) {
    if (!seen.emplace(agent, round.lives[rank]).second) violate(name(agent) + " is twice in round " + name(release.id));
    if (round.offsets[rank] != next) violate("ranks of round " + name(release.id) + " are not contiguous");
    next += agents_[static_cast<std::size_t>(agent)].local_world_size;
  }
  if (next != release.world_size) violate("round " + name(release.id) + " has ranks that nobody has");
}

// Never two rounds at once: not of two coordinators, not on disjoint memberships, and nobody of the newer one in the older.
void World::check_training(int index) {
  const RoundId own_id = agents_[static_cast<std::size_t>(index)].round;
  const Round& own = rounds_[own_id];
  for (auto& [id, other] : rounds_) {
    if (id == own_id || other.training.empty()) continue;
    for (const int b : other.training) {
      if (!trains(agents_[static_cast<std::size_t>(b)])) continue;
      const std::string both = name(index) + " in round " + name(own_id) + ", " + name(b) + " in round " + name(id);
      if (other.coordinator != own.coordinator || other.leadership != own.leadership) {
        violate("rounds of two coordinators train at once: " + both);
        continue;
      }
      const Round& newer = own_id > id ? own : other;
      const int in_older = own_id > id ? b : index;
      for (const auto& [rank, agent] : newer.members) {
        if (agent == in_older) violate("a node trains in an older round than the one it is in: " + both);
      }
      const bool shared = std::any_of(own.members.begin(), own.members.end(), [&](const auto& mine) {
        return std::any_of(other.members.begin(), other.members.end(),
                           [&](const auto& theirs) { return theirs.second == mine.second; });
      });
      const bool all_known = std::ssize(own.members) == own.first.nodes && std::ssize(other.members) == other.first.nodes;
      if (!shared && all_known) violate("disjoint rounds train at once: " + both);
    }
  }
}

// Nothing grows with the number of nodes.
void World::check_message(const FromCoordinator& message) {
  if (!std::holds_alternative<Release>(message)) return;
  try {
    const std::size_t size = encode(message).size();
    result_.largest_message = std::max(result_.largest_message, size);
    if (size > kLargestRelease) violate("a release has " + std::to_string(size) + " bytes");
  } catch (const ProtocolError& error) {
    violate(std::string("a release that cannot be sent: ") + error.what());
  }
}

}  // namespace ddprun::rendezvous::simulation
