// Partially sorted answers give the same authority as a full sort.
#include "rendezvous/coordinator/leadership.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {
namespace {

// The time of the answer that completes a majority, from the newest on.
std::optional<Time> enough_since(const std::vector<Answer>& answers, const Config& round, const Rules& rules) {
  Tally tally(round);
  for (const auto& [time, rank] : answers) {
    tally.add(rank);
    if (tally.enough(rules)) return time;
  }
  return std::nullopt;
}

TEST(NewestFirst, IsEnoughAtTheSameTimeAsAFullSort) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    const auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
    Config round{.id = {.term = 1, .round = 1}, .nodes = 1 + up_to(20), .rank = 0};
    if (up_to(9) == 0) round.arbiter = Arbiter::kEtcd;
    Rules rules;
    rules.half_needs_rank_0 = up_to(9) != 0;
    std::vector<Answer> answers;
    for (int rank = 0; rank < round.nodes; ++rank) {
      if (up_to(7) != 0) answers.emplace_back(Time(nanoseconds(up_to(12))), rank);  // many with equal times
    }
    std::shuffle(answers.begin(), answers.end(), random);
    std::vector<Answer> sorted = answers;
    std::sort(sorted.begin(), sorted.end(), [](const Answer& a, const Answer& b) { return a.first > b.first; });
    newest_first(answers, round, rules);
    EXPECT_EQ(enough_since(answers, round, rules), enough_since(sorted, round, rules)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
