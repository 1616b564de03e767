// Tests which voters a candidate counts. These rules of leader_election.hpp matter only in rare schedules, so only a few seeds
// of the simulator test them.
#include "rendezvous/node/leader_election.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Three nodes took part in round 1 of term 1, which is committed. Node 1, its coordinator, is lost. Node 2 is the candidate.
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
  LeaderElection::Candidate candidate() const {
    return {.id = {2}, .state = state_, .candidate_rank = 1, .may_campaign_at = time_, .lease = seconds(5)};
  }
  bool campaigns() {
    if (!leader_election_.attempt(candidate(), {time_ + seconds(1), 0})) return false;
    state_.promised_term = leader_election_.election()->term;
    return true;
  }
  void vote(LinkId link) {
    const std::uint64_t term = leader_election_.election()->term;
    leader_election_.receive(link, Vote{.term = term, .promised_term = term, .echo = 1});
  }

  Time time_{seconds(1000)};
  PersistentState state_ = state({1, 1}, 1);
  LeaderElection leader_election_{Rules{}};
};

TEST_F(ThreeNodes, CampaignsWithAMajorityAndLeadsAfterItsVotes) {
  EXPECT_FALSE(campaigns());
  leader_election_.add(7, hello(3, 1, state({1, 1}, 2)));
  ASSERT_TRUE(campaigns());
  EXPECT_EQ(leader_election_.request_for(candidate()).term, 2u);
  EXPECT_FALSE(leader_election_.won(candidate()).has_value());
  vote(7);
  const auto won = leader_election_.won(candidate());
  ASSERT_TRUE(won.has_value());
  EXPECT_EQ(won->promised_term, 2u);
  EXPECT_EQ(won->current.id, (RoundId{1, 1}));
}

TEST_F(ThreeNodes, CountsANodeWithTwoLinksOnce) {
  state_ = state({1, 1}, -1);  // now the candidate is a spare, which has no rank in the round
  leader_election_.add(7, hello(3, 1, state({1, 1}, 2)));
  leader_election_.add(8, hello(3, 2, state({1, 1}, 2)));
  EXPECT_FALSE(campaigns());
}

// A broken connection may close late, after its node has sent a newer Hello over another connection. The candidate must use
// the newest Hello.
TEST_F(ThreeNodes, CountsANodeByItsNewestHello) {
  leader_election_.add(7, hello(3, 1, state({1, 0}, 2)));
  EXPECT_FALSE(campaigns());
  leader_election_.add(8, hello(3, 2, state({1, 1}, 2)));
  EXPECT_TRUE(campaigns());
}

TEST_F(ThreeNodes, IgnoresForeignVotes) {
  leader_election_.add(7, hello(3, 1, state({1, 1}, 2)));
  ASSERT_TRUE(campaigns());
  leader_election_.receive(7, Vote{.term = 2, .promised_term = 4, .echo = 1});
  leader_election_.receive(9, Vote{.term = 2, .promised_term = 2, .echo = 1});
  EXPECT_FALSE(leader_election_.won(candidate()).has_value());
}

// ---- Many nodes ----

// The result for a candidate with these voters: when it would start an election, and with which state it would win.
struct ElectionView {
  bool attempt = false;
  std::optional<PersistentState> won;
  bool operator==(const ElectionView&) const = default;
};

ElectionView view_of(LeaderElection& succession, PersistentState state, const Roster& roster) {
  LeaderElection::Candidate self{.id = {0, 1},
                                 .state = std::move(state),
                                 .candidate_rank = 1,
                                 .may_campaign_at = Time(seconds(1)),
                                 .lease = seconds(5),
                                 .roster = &roster};
  ElectionView opinion{.attempt = succession.next_attempt(self).has_value(), .won = {}};
  if (succession.election()) self.state.promised_term = succession.election()->term;
  opinion.won = succession.won(self);
  // The terms are not compared, because the two elections use different terms.
  if (opinion.won) opinion.won->promised_term = 0;
  return opinion;
}

// The coordinator counted a failure of round 1 and released round 2, but no other node received that release. A node that
// inherits round 1 also inherits the count. If another node reports the same failure again, the failure must not be counted
// twice.
TEST_F(ThreeNodes, DetectsAFailureCountedInTheInheritedBudget) {
  PersistentState newer = state({1, 2}, 0);
  newer.previous = state_.current;
  newer.previous.rank = 0;
  for (const std::int32_t restarts : {0, 1}) {
    newer.budget.restart_count = restarts;
    leader_election_.add(7, hello(3, 1, state({1, 1}, 2)));
    ASSERT_TRUE(campaigns());
    vote(7);
    leader_election_.add(8, hello(1, 1, newer));
    const auto won = leader_election_.won(candidate());
    ASSERT_TRUE(won.has_value());
    EXPECT_EQ(won->current.id, (RoundId{1, 1}));
    EXPECT_EQ(won->budget.restart_count, restarts);
    EXPECT_EQ(leader_election_.has_judged(candidate(), *won), restarts == 1);
    leader_election_ = LeaderElection{Rules{}};
  }
}

// The incremental count must equal a full count, for random states of the nodes and random orders in which they join and leave.
TEST(Voters, IncrementalCountEqualsAFullCount) {
  constexpr int kNodes = 7;
  int with_a_majority = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
    const auto some_state = [&](int rank) {
      PersistentState known;
      known.promised_term = static_cast<std::uint64_t>(3 + pick(1));
      if (pick(9) == 0) return known;  // this node has not recorded any round
      const int round = 1 + pick(1);
      known.current = {.id = {1, round}, .born = 1, .nodes = kNodes, .rank = pick(9) == 0 ? -1 : rank};
      if (pick(3) > 0)
        known.previous = {.id = {1, round - 1}, .born = 1, .nodes = kNodes - 2, .rank = rank < kNodes - 2 ? rank : -1};
      return known;
    };
    Roster roster{.origin = {1, 1 + pick(2)}, .nodes = {}};
    for (std::uint8_t node = 0; node < kNodes; ++node) roster.nodes.push_back({1, node});
    const PersistentState own = some_state(0);
    LeaderElection succession{Rules{}};
    std::map<LinkId, Hello> connected;
    std::set<LinkId> votes;
    std::uint64_t attempts = 0;
    const auto vote_over = [](LeaderElection& to, LinkId link) {
      const std::uint64_t term = to.election()->term;
      to.receive(link, Vote{.term = term, .promised_term = term, .echo = 1});
    };
    const auto campaign = [&](LeaderElection& one) {
      LeaderElection::Candidate self{.id = {0, 1}, .state = own, .candidate_rank = 1, .lease = seconds(5), .roster = &roster};
      return one.attempt(self, {Time(seconds(2)), 0});
    };
    bool campaigned = false;
    for (int i = 0; i < 40; ++i) {
      if (const LinkId link = static_cast<LinkId>(1 + pick(8)); pick(3) > 0) {
        const int rank = 1 + pick(kNodes - 2);
        Hello hello;
        hello.node = {1, static_cast<std::uint8_t>(rank)};
        hello.incarnation = 1;
        hello.attempt = ++attempts;
        hello.state = some_state(rank);
        connected.insert_or_assign(link, hello);
        votes.erase(link);
        succession.add(link, hello);
      } else {
        connected.erase(link);
        votes.erase(link);
        succession.remove(link);
      }
      if (!campaigned && pick(5) == 0) campaigned = campaign(succession);
      if (campaigned && pick(1) == 0) {
        const LinkId link = static_cast<LinkId>(1 + pick(8));
        if (connected.contains(link)) votes.insert(link);
        vote_over(succession, link);
      }
      const ElectionView incremental = view_of(succession, own, roster);
      with_a_majority += incremental.won.has_value() ? 1 : 0;
      LeaderElection fresh{Rules{}};
      for (const auto& [link, hello] : connected) fresh.add(link, hello);
      EXPECT_EQ(fresh.any_knows_round(), succession.any_knows_round());
      if (!campaigned) {
        EXPECT_EQ(view_of(fresh, own, roster), incremental) << "seed " << seed << ", event " << i;
      } else if (campaign(fresh)) {
        for (const LinkId link : votes) vote_over(fresh, link);
        EXPECT_EQ(view_of(fresh, own, roster).won, incremental.won) << "seed " << seed << ", event " << i;
      }
    }
  }
  EXPECT_GT(with_a_majority, 100);
}

// Each voter is counted when it joins, when it votes, and when the counted round changes. The total cost must be linear in the
// number of voters.
TEST(Voters, TenThousandVotersCostTenThousandSteps) {
  constexpr std::int32_t kNodes = 10000;
  const auto state_of_rank = [](std::int32_t rank) {
    PersistentState known;
    known.promised_term = 1;
    known.current = {.id = {1, 1}, .born = 1, .nodes = kNodes, .rank = rank};
    return known;
  };
  LeaderElection succession{Rules{}};
  LeaderElection::Candidate self{
      .id = {0, 1}, .state = state_of_rank(1), .candidate_rank = 1, .may_campaign_at = {}, .lease = seconds(5)};
  bool campaigned = false;
  for (std::int32_t rank = 2; rank < kNodes; ++rank) {
    Hello hello;
    hello.node = {1, static_cast<std::uint8_t>(rank / 256), static_cast<std::uint8_t>(rank % 256)};
    hello.state = state_of_rank(rank);
    succession.add(static_cast<LinkId>(rank), hello);
    (void)succession.next_attempt(self);
    if (succession.attempt(self, {Time(seconds(1)), 0})) {
      campaigned = true;
      self.state.promised_term = succession.election()->term;
    }
  }
  ASSERT_TRUE(campaigned);
  for (std::int32_t rank = 2; rank < kNodes; ++rank) {
    const std::uint64_t term = succession.election()->term;
    succession.receive(static_cast<LinkId>(rank), Vote{.term = term, .promised_term = term, .echo = 1});
    (void)succession.won(self);
  }
  EXPECT_TRUE(succession.won(self).has_value());
  EXPECT_LT(succession.counted(), 4 * kNodes);
}

}  // namespace
}  // namespace ddprun::rendezvous
