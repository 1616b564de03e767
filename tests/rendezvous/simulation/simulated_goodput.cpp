// The part of World (simulated_world.hpp) that measures goodput: while nothing disturbs the nodes and enough of them are there,
// a job trains. A rule that costs too much, or a state out of which nothing leads, shows here though no two rounds ever meet.
#include <algorithm>

#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {
namespace {

// From the end of a disturbance: a lease and a quarter until an election, and some attempts.
constexpr Nanos kSettled = 10 * kSecond;
// The floor: with spares the members of a round may be gone, and who looks for them gives up after 30 s at most.
constexpr Nanos kLongestIdle = 30 * kSecond;

}  // namespace

// Not where nodes leave for good, or forget: they may be needed for a majority, or be those that lead first.
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
