// The part of World (simulated_world.hpp) that measures goodput: while nothing disturbs the nodes and enough of them are
// connected, a job trains. This detects rules that cost too much and states without an exit, even if no two rounds ever
// overlap.
#include <algorithm>

#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {
namespace {

// After the end of a disturbance: 1.25 leases until an election, and some attempts.
constexpr Nanos kSettled = 10 * kSecond;
// The bound: with spares the members of a round may be gone, and a node that looks for them gives up after at most 30 s.
constexpr Nanos kLongestIdle = 30 * kSecond;

}  // namespace

// Not calm if nodes have left permanently or lost their memory: they may be needed for a majority, or to lead first.
bool World::is_calm() const {
  if (job_over_ || signals_came_ || leaving_happens_ || nodes_are_reclaimed_ || memory_is_lost_ || records_were_lost_ ||
      somebody_left_)
    return false;
  const auto is_there = [&](const Agent& agent) { return agent.node && !agent.left && !agent.broken; };
  const auto disturbed = [&](const Agent& agent) { return agent.stuck || agent.disturbed_until + kSettled > time_; };
  return std::count_if(agents_.begin(), agents_.end(), is_there) >= min_nodes_ &&
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
