// Measures the goodput in World (simulated_world.hpp). While no fault disturbs the nodes and enough nodes are connected, the
// job must train. This check finds steps of the protocol that take too long, and states that a job never leaves. The
// invariants about overlapping rounds cannot find these two kinds of defects.
#include <algorithm>

#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {
namespace {

// How long after a disturbance the job must train again: 1.25 leases until an election, plus time for several attempts.
constexpr Nanos kSettled = 10 * kSecond;
// The longest allowed time without training. With spares, all members of a round may be lost. A node that searches for these
// members gives up after at most 30 s.
constexpr Nanos kLongestIdle = 30 * kSecond;

}  // namespace

// Returns true if the job must train now. If nodes have left permanently or lost their records, it returns false, because the
// job may need these nodes for a majority or as its first coordinator.
bool World::is_calm() const {
  if (job_over_ || signals_came_ || leaving_happens_ || nodes_are_reclaimed_ || memory_is_lost_ || records_were_lost_ ||
      node_left_)
    return false;
  const auto is_available = [&](const Agent& agent) { return agent.node && !agent.left && !agent.broken; };
  const auto disturbed = [&](const Agent& agent) { return agent.stuck || agent.disturbed_until + kSettled > time_; };
  return std::count_if(agents_.begin(), agents_.end(), is_available) >= min_nodes_ &&
         std::none_of(agents_.begin(), agents_.end(), disturbed);
}

bool World::some_round_trains() const {
  const auto hangs = [&](const RoundId& round) {
    return std::any_of(agents_.begin(), agents_.end(), [&](const Agent& one) { return one.hangs && one.round == round; });
  };
  return std::any_of(agents_.begin(), agents_.end(), [&](const Agent& agent) {
    const auto round = rounds_.find(agent.round);
    return trains(agent) && !agent.ending && round != rounds_.end() && round->second.full && !hangs(agent.round);
  });
}

void World::account(Nanos until) {
  constexpr std::size_t kMany = 16;
  const Nanos length = until - time_;
  if (length <= 0 || !scenario_.faults || agents_.size() > kMany) return;
  if (!is_calm()) {
    idle_ = 0;
    return;
  }
  const bool trained = some_round_trains();
  result_.calm_s += static_cast<double>(length) / static_cast<double>(kSecond);
  if (trained) result_.trained_s += static_cast<double>(length) / static_cast<double>(kSecond);
  idle_ = trained ? 0 : idle_ + length;
  if (idle_ > kLongestIdle) violate("nothing disturbs the nodes, and no round trains for 30 s");
}

}  // namespace ddprun::rendezvous::simulation
