// Tests that partially sorted answers give the same end of the leader lease as completely sorted answers.
#include "rendezvous/coordinator/leader_lease.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {
namespace {

// Counts the answers in the order of the vector. Returns the time of the answer that completes a majority.
std::optional<Time> enough_since(const std::vector<Answer>& answers, const Config& round, const Rules& rules) {
  Tally tally(round);
  for (const auto& [time, rank] : answers) {
    tally.add(rank);
    if (tally.enough(rules)) return time;
  }
  return std::nullopt;
}

TEST(NewestFirst, GivesTheSameMajorityTimeAsAFullSort) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    const auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
    Config round{.id = {.term = 1, .round = 1}, .nodes = 1 + up_to(20), .rank = 0};
    if (up_to(9) == 0) round.arbiter = Arbiter::kEtcd;
    Rules rules;
    rules.half_needs_rank_0 = up_to(9) != 0;
    std::vector<Answer> answers;
    for (int rank = 0; rank < round.nodes; ++rank) {
      // Times are drawn from only 13 values, so that many answers have equal times.
      if (up_to(7) != 0) answers.emplace_back(Time(nanoseconds(up_to(12))), rank);
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
