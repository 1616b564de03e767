// Which nodes a candidate counts: rules of succession.hpp and of the vote that only rare schedules need, so that few seeds of
// the simulator show them.
#include "rendezvous/node/succession.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Three nodes took part in round 1 of term 1, which is committed. Node 1 coordinated it and is gone; node 2 is the candidate.
class ThreeNodes : public testing::Test {
 protected:
  static PersistentState state(RoundId round, std::int32_t rank) {
    PersistentState state;
    state.promised_term = 1;
    state.current = Config{.id = round, .born = round.term, .nodes = 3, .rank = rank};
    return state;
  }
  static Hello hello(std::uint8_t node, std::uint64_t attempt, PersistentState state) {
    Hello hello;
    hello.node = {node};
    hello.incarnation = 1;
    hello.attempt = attempt;
    hello.state = std::move(state);
    return hello;
  }
  Succession::Candidate candidate() const {
    return {.id = {2}, .state = state_, .place_in_line = 1, .may_stand_at = time_, .lease = seconds(5)};
  }
  bool stands() {
    if (!succession_.attempt(candidate(), {time_ + seconds(1), 0})) return false;
    state_.promised_term = succession_.election()->term;
    return true;
  }
  void vote(LinkId link) {
    const std::uint64_t term = succession_.election()->term;
    succession_.hear(link, Vote{.term = term, .promised_term = term, .echo = 1});
  }

  Time time_{seconds(1000)};
  PersistentState state_ = state({1, 1}, 1);
  Succession succession_{Rules{}};
};

TEST_F(ThreeNodes, AsksOnceAMajorityIsThereAndLeadsOnceItHasVoted) {
  EXPECT_FALSE(stands());
  succession_.add(7, hello(3, 1, state({1, 1}, 2)));
  ASSERT_TRUE(stands());
  EXPECT_EQ(succession_.request_for(candidate()).term, 2u);
  EXPECT_FALSE(succession_.won(candidate()).has_value());
  vote(7);
  const auto won = succession_.won(candidate());
  ASSERT_TRUE(won.has_value());
  EXPECT_EQ(won->promised_term, 2u);
  EXPECT_EQ(won->current.id, (RoundId{1, 1}));
}

TEST_F(ThreeNodes, CountsANodeThatIsThereTwiceOnce) {
  state_ = state({1, 1}, -1);  // a spare
  succession_.add(7, hello(3, 1, state({1, 1}, 2)));
  succession_.add(8, hello(3, 2, state({1, 1}, 2)));
  EXPECT_FALSE(stands());
}

// A cut connection may close long after its node has sent newer data over another one.
TEST_F(ThreeNodes, CountsANodeByWhatItSaidLastWhicheverConnectionCameFirst) {
  succession_.add(7, hello(3, 1, state({1, 0}, 2)));
  EXPECT_FALSE(stands());
  succession_.add(8, hello(3, 2, state({1, 1}, 2)));
  EXPECT_TRUE(stands());
}

TEST_F(ThreeNodes, AVoteForAnotherTermOrFromNobodyIsNone) {
  succession_.add(7, hello(3, 1, state({1, 1}, 2)));
  ASSERT_TRUE(stands());
  succession_.hear(7, Vote{.term = 2, .promised_term = 4, .echo = 1});
  succession_.hear(9, Vote{.term = 2, .promised_term = 2, .echo = 1});
  EXPECT_FALSE(succession_.won(candidate()).has_value());
}

// ---- many nodes ----

// A candidate's result for its electors; the candidate is part of the round.
struct Opinion {
  bool attempt = false;
  std::optional<PersistentState> won;
  bool operator==(const Opinion&) const = default;
};

Opinion opinion_of(Succession& succession, PersistentState state, const Roster& roster) {
  Succession::Candidate self{.id = {0, 1},
                             .state = std::move(state),
                             .place_in_line = 1,
                             .may_stand_at = Time(seconds(1)),
                             .lease = seconds(5),
                             .roster = &roster};
  Opinion opinion{.attempt = succession.next_attempt(self).has_value(), .won = {}};
  if (succession.election()) self.state.promised_term = succession.election()->term;
  opinion.won = succession.won(self);
  if (opinion.won) opinion.won->promised_term = 0;  // another election
  return opinion;
}

// The coordinator had counted a failure in round 1 and released round 2, which no other node received. A node that inherits
// round 1 also inherits that count, and gets a report of the failure again.
TEST_F(ThreeNodes, KnowsWhetherTheBudgetHasCountedTheFailureOfTheRoundThatItInherits) {
  PersistentState newer = state({1, 2}, 0);
  newer.previous = state_.current;
  newer.previous.rank = 0;
  for (const std::int32_t restarts : {0, 1}) {
    newer.budget.restart_count = restarts;
    succession_.add(7, hello(3, 1, state({1, 1}, 2)));
    ASSERT_TRUE(stands());
    vote(7);
    succession_.add(8, hello(1, 1, newer));
    const auto won = succession_.won(candidate());
    ASSERT_TRUE(won.has_value());
    EXPECT_EQ(won->current.id, (RoundId{1, 1}));
    EXPECT_EQ(won->budget.restart_count, restarts);
    EXPECT_EQ(succession_.has_judged(candidate(), *won), restarts == 1);
    succession_ = Succession{Rules{}};
  }
}

// Incremental counting gives the same result as a full count, for all states of the nodes and all orders in which they join and
// leave.
TEST(Electors, CountedByOnesAreTheSameAsAllOfThem) {
  constexpr int kNodes = 7;
  int with_a_majority = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
    const auto some_standing = [&](int rank) {
      PersistentState told;
      told.promised_term = static_cast<std::uint64_t>(3 + pick(1));
      if (pick(9) == 0) return told;  // knows no round
      const int round = 1 + pick(1);
      told.current = {.id = {1, round}, .born = 1, .nodes = kNodes, .rank = pick(9) == 0 ? -1 : rank};
      if (pick(3) > 0)
        told.previous = {.id = {1, round - 1}, .born = 1, .nodes = kNodes - 2, .rank = rank < kNodes - 2 ? rank : -1};
      return told;
    };
    Roster roster{.origin = {1, 1 + pick(2)}, .nodes = {}};
    for (std::uint8_t node = 0; node < kNodes; ++node) roster.nodes.push_back({1, node});
    const PersistentState own = some_standing(0);
    Succession succession{Rules{}};
    std::map<LinkId, Hello> here;
    std::set<LinkId> votes;
    std::uint64_t attempts = 0;
    const auto vote_over = [](Succession& to, LinkId link) {
      const std::uint64_t term = to.election()->term;
      to.hear(link, Vote{.term = term, .promised_term = term, .echo = 1});
    };
    const auto stand = [&](Succession& one) {
      Succession::Candidate self{.id = {0, 1}, .state = own, .place_in_line = 1, .lease = seconds(5), .roster = &roster};
      return one.attempt(self, {Time(seconds(2)), 0});
    };
    bool stood = false;
    for (int i = 0; i < 40; ++i) {
      if (const LinkId link = static_cast<LinkId>(1 + pick(8)); pick(3) > 0) {
        const int rank = 1 + pick(kNodes - 2);
        Hello hello;
        hello.node = {1, static_cast<std::uint8_t>(rank)};
        hello.incarnation = 1;
        hello.attempt = ++attempts;
        hello.state = some_standing(rank);
        here.insert_or_assign(link, hello);
        votes.erase(link);
        succession.add(link, hello);
      } else {
        here.erase(link);
        votes.erase(link);
        succession.remove(link);
      }
      if (!stood && pick(5) == 0) stood = stand(succession);
      if (stood && pick(1) == 0) {
        const LinkId link = static_cast<LinkId>(1 + pick(8));
        if (here.contains(link)) votes.insert(link);
        vote_over(succession, link);
      }
      const Opinion by_ones = opinion_of(succession, own, roster);
      with_a_majority += by_ones.won.has_value() ? 1 : 0;
      Succession fresh{Rules{}};
      for (const auto& [link, hello] : here) fresh.add(link, hello);
      EXPECT_EQ(fresh.somebody_knows_a_round(), succession.somebody_knows_a_round());
      if (!stood) {
        EXPECT_EQ(opinion_of(fresh, own, roster), by_ones) << "seed " << seed << ", event " << i;
      } else if (stand(fresh)) {
        for (const LinkId link : votes) vote_over(fresh, link);
        EXPECT_EQ(opinion_of(fresh, own, roster).won, by_ones.won) << "seed " << seed << ", event " << i;
      }
    }
  }
  EXPECT_GT(with_a_majority, 100);
}

// Each is counted when it joins and when it votes, and once more when the counted round changes.
TEST(Electors, TenThousandCostTenThousandSteps) {
  constexpr std::int32_t kNodes = 10000;
  const auto standing_of = [](std::int32_t rank) {
    PersistentState told;
    told.promised_term = 1;
    told.current = {.id = {1, 1}, .born = 1, .nodes = kNodes, .rank = rank};
    return told;
  };
  Succession succession{Rules{}};
  Succession::Candidate self{
      .id = {0, 1}, .state = standing_of(1), .place_in_line = 1, .may_stand_at = {}, .lease = seconds(5)};
  bool stood = false;
  for (std::int32_t rank = 2; rank < kNodes; ++rank) {
    Hello hello;
    hello.node = {1, static_cast<std::uint8_t>(rank / 256), static_cast<std::uint8_t>(rank % 256)};
    hello.state = standing_of(rank);
    succession.add(static_cast<LinkId>(rank), hello);
    (void)succession.next_attempt(self);
    if (succession.attempt(self, {Time(seconds(1)), 0})) {
      stood = true;
      self.state.promised_term = succession.election()->term;
    }
  }
  ASSERT_TRUE(stood);
  for (std::int32_t rank = 2; rank < kNodes; ++rank) {
    const std::uint64_t term = succession.election()->term;
    succession.hear(static_cast<LinkId>(rank), Vote{.term = term, .promised_term = term, .echo = 1});
    (void)succession.won(self);
  }
  EXPECT_TRUE(succession.won(self).has_value());
  EXPECT_LT(succession.counted(), 4 * kNodes);
}

}  // namespace
}  // namespace ddprun::rendezvous
