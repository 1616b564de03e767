// Implements the arbiter of World (simulated_world.hpp). For some time, some or all nodes cannot reach the arbiter. Its
// answers may be late, or may be lost after the arbiter has decided.
#include <algorithm>

#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {
namespace {

constexpr Nanos kArbiterTimeout = kSecond;  // limit for a query to the arbiter: a fifth of the lease

}  // namespace

void World::build_arbiter() {
  arbiter_random_.seed(scenario_.seed + 9173);
  min_nodes_ = 1;
  // There are no spares, because spares could start the job again elsewhere.
  max_nodes_ = static_cast<std::int32_t>(agents_.size());
  arbiter_away_.resize(agents_.size());
  const auto some_time = [&] {
    const Nanos from = static_cast<Nanos>(arbiter_random_() % 40000) * kMs;
    return std::pair(from, from + static_cast<Nanos>(arbiter_random_() % 15000) * kMs);
  };
  for (auto& away : arbiter_away_) {
    if (arbiter_random_() % 100 < 40) away.push_back(some_time());
  }
  if (arbiter_random_() % 100 >= 20) return;
  const auto of_all = some_time();
  for (auto& away : arbiter_away_) away.push_back(of_all);
}

void World::configure_arbiter(int, NodeSettings& settings) const {
  const bool is_directory = scenario_.seed % 3 == 0;
  (is_directory ? settings.member.run_directory : settings.member.arbiter) = 5;
}

bool World::arbiter_is_cut_off(int index) const {
  const auto& away = arbiter_away_[static_cast<std::size_t>(index)];
  return !recovering_ &&
         std::any_of(away.begin(), away.end(), [&](const auto& one) { return one.first <= time_ && time_ < one.second; });
}

void World::query_arbiter(int index, const node_action::QueryArbiter& action) {
  const std::uint32_t life = agents_[static_cast<std::size_t>(index)].life;
  const std::int64_t number = std::ssize(queries_);
  queries_.push_back({.ballot = action.ballot, .self = action.self, .until = time_ + kArbiterTimeout});
  trace(name(index) + " queries the arbiter for round " + name(action.ballot.origin));
  const bool is_lost = arbiter_is_cut_off(index) || (!recovering_ && arbiter_random_() % 100 < 8);
  const Nanos way = static_cast<Nanos>(arbiter_random_() % (arbiter_random_() % 4 == 0 ? 900 : 60)) * kMs;
  if (!is_lost) schedule(time_ + way, Event::Kind::kArbiterReceives, index, number, life);
  schedule(time_ + kArbiterTimeout, Event::Kind::kArbiterAnswers, index, number, life);
}

// Delivers a query to the arbiter, even if the node that sent the query has ended.
void World::arbiter_receives(const Event& event) {
  Query& query = queries_[static_cast<std::size_t>(event.b)];
  const auto [vote, is_new] = arbiter_votes_.try_emplace({query.ballot.founder, query.ballot.origin}, query.self);
  if (is_new) trace("the arbiter gives round " + name(query.ballot.origin) + " to " + name(event.a));
  const bool is_lost = arbiter_is_cut_off(event.a) || (!recovering_ && arbiter_random_() % 100 < 15);
  const Nanos at = time_ + static_cast<Nanos>(arbiter_random_() % (arbiter_random_() % 4 == 0 ? 900 : 60)) * kMs;
  if (is_lost || at >= query.until) return;
  query.answer = vote->second == query.self ? BallotAnswer::kMine : BallotAnswer::kOthers;
  schedule(at, Event::Kind::kArbiterAnswers, event.a, event.b, event.life);
}

void World::arbiter_answers(const Event& event) {
  Query& query = queries_[static_cast<std::size_t>(event.b)];
  if (query.until == 0) return;  // already answered
  query.until = 0;
  result_.by_arbiter += query.answer == BallotAnswer::kMine ? 1 : 0;
  trace(name(event.a) + (query.answer == BallotAnswer::kMine     ? " learns that it has won the round"
                         : query.answer == BallotAnswer::kOthers ? " learns that the other node has won the round"
                                                                 : " gets no answer of the arbiter"));
  if (query.answer == BallotAnswer::kOthers) agents_[static_cast<std::size_t>(event.a)].outvoted = true;
  deliver(event.a, node_event::ArbiterAnswered{query.ballot, query.answer, "the arbiter made no decision"});
}

}  // namespace ddprun::rendezvous::simulation
