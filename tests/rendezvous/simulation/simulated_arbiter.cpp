// The part of World (simulated_world.hpp) that decides between two nodes: an arbiter that is unreachable for a while, for some
// or for all nodes. Its answers are late or lost, even after it has decided.
#include <algorithm>

#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {
namespace {

constexpr Nanos kArbiterTimeout = kSecond;  // a fifth of the lease

}  // namespace

void World::build_arbiter() {
  arbiter_random_.seed(scenario_.seed + 9173);
  min_nodes_ = 1;
  max_nodes_ = static_cast<std::int32_t>(agents_.size());  // with spares the number of nodes elsewhere is unknown
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

void World::tell_of_arbiter(int, NodeSettings& settings) const {
  const bool is_directory = scenario_.seed % 3 == 0;
  (is_directory ? settings.member.run_directory : settings.member.arbiter) = 5;
}

bool World::arbiter_is_cut_off(int index) const {
  const auto& away = arbiter_away_[static_cast<std::size_t>(index)];
  return !recovering_ &&
         std::any_of(away.begin(), away.end(), [&](const auto& one) { return one.first <= time_ && time_ < one.second; });
}

void World::ask_arbiter(int index, const node_action::AskArbiter& action) {
  const std::uint32_t life = agents_[static_cast<std::size_t>(index)].life;
  const std::int64_t number = std::ssize(questions_);
  questions_.push_back({.ballot = action.ballot, .self = action.self, .until = time_ + kArbiterTimeout});
  tell(name(index) + " asks the arbiter for round " + name(action.ballot.origin));
  const bool is_lost = arbiter_is_cut_off(index) || (!recovering_ && arbiter_random_() % 100 < 8);
  const Nanos way = static_cast<Nanos>(arbiter_random_() % (arbiter_random_() % 4 == 0 ? 900 : 60)) * kMs;
  if (!is_lost) schedule(time_ + way, Event::Kind::kArbiterHears, index, number, life);
  schedule(time_ + kArbiterTimeout, Event::Kind::kArbiterAnswers, index, number, life);
}

// The arbiter gets the query even if the node that sent it is gone.
void World::arbiter_hears(const Event& event) {
  Question& question = questions_[static_cast<std::size_t>(event.b)];
  const auto [vote, is_new] = arbiter_votes_.try_emplace({question.ballot.founder, question.ballot.origin}, question.self);
  if (is_new) tell("the arbiter gives round " + name(question.ballot.origin) + " to " + name(event.a));
  const bool is_lost = arbiter_is_cut_off(event.a) || (!recovering_ && arbiter_random_() % 100 < 15);
  const Nanos at = time_ + static_cast<Nanos>(arbiter_random_() % (arbiter_random_() % 4 == 0 ? 900 : 60)) * kMs;
  if (is_lost || at >= question.until) return;
  question.answer = vote->second == question.self ? BallotAnswer::kMine : BallotAnswer::kOthers;
  schedule(at, Event::Kind::kArbiterAnswers, event.a, event.b, event.life);
}

void World::arbiter_answers(const Event& event) {
  Question& question = questions_[static_cast<std::size_t>(event.b)];
  if (question.until == 0) return;  // it has been answered
  question.until = 0;
  result_.by_arbiter += question.answer == BallotAnswer::kMine ? 1 : 0;
  tell(name(event.a) + (question.answer == BallotAnswer::kMine     ? " hears that the round is its own"
                        : question.answer == BallotAnswer::kOthers ? " hears that the round is the other's"
                                                                   : " hears nothing of the arbiter"));
  if (question.answer == BallotAnswer::kOthers) agents_[static_cast<std::size_t>(event.a)].outvoted = true;
  deliver(event.a, node_event::ArbiterAnswered{question.ballot, question.answer, "the arbiter did not answer"});
}

}  // namespace ddprun::rendezvous::simulation
