// Tests arbiters in cases that only a few seeds of the simulator reach: which rounds have an arbiter, and for which rounds it
// is queried. The vote of an arbiter or of a dead coordinator must not commit a round.
#include "rendezvous/node/arbitration.hpp"

#include <gtest/gtest.h>

#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/coordinator/release.hpp"
#include "rendezvous/node/departed_voters.hpp"
#include "rendezvous/node/leader_election.hpp"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kAnyTime{seconds(1000)};
constexpr nanoseconds kFive = seconds(5);

Config round_of_two(Arbiter arbiter, std::int64_t number = 1, std::int32_t rank = 1) {
  return {.id = {1, number}, .born = 1, .nodes = 2, .rank = rank, .arbiter = arbiter, .founder = {1}};
}

TEST(Arbitration, SendsOneQueryAtATimeAndRetries) {
  Arbitration arbitration(Rules{}, Config{});
  const std::vector<Config> rounds{round_of_two(Arbiter::kEtcd, 2), round_of_two(Arbiter::kEtcd, 1)};
  const auto first = arbitration.query(rounds, kFive, kAnyTime);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->origin, (RoundId{1, 2}));
  EXPECT_FALSE(arbitration.query(rounds, kFive, kAnyTime).has_value());
  arbitration.receive(*first, BallotAnswer::kNone, "no route to host", kAnyTime);
  EXPECT_EQ(arbitration.next_deadline(), kAnyTime + milliseconds(500));
  EXPECT_FALSE(arbitration.query(rounds, kFive, kAnyTime).has_value());
  EXPECT_EQ(arbitration.why_not(), ": no route to host");
  const auto again = arbitration.query(rounds, kFive, kAnyTime + milliseconds(500));
  EXPECT_EQ(again, first);
  arbitration.receive(*again, BallotAnswer::kMine, "", kAnyTime);
  const auto other = arbitration.query(rounds, kFive, kAnyTime + seconds(1));
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->origin, (RoundId{1, 1}));
  arbitration.receive(*other, BallotAnswer::kOthers, "", kAnyTime);
  EXPECT_FALSE(arbitration.query(rounds, kFive, kAnyTime + seconds(2)).has_value());
}

// After a restart the path of the run directory may refer to a different folder. So the agent must not use that folder as the
// arbiter of an old round.
TEST(Arbitration, RestartedAgentDoesNotQueryTheRunDirectory) {
  const Config before = round_of_two(Arbiter::kRunDirectory);
  Arbitration arbitration(Rules{}, before);
  EXPECT_FALSE(arbitration.query({before}, kFive, kAnyTime).has_value());
  EXPECT_NE(arbitration.why_not(), "");
  EXPECT_TRUE(arbitration.query({round_of_two(Arbiter::kRunDirectory, 2)}, kFive, kAnyTime).has_value());
  Arbitration of_etcd(Rules{}, round_of_two(Arbiter::kEtcd));
  EXPECT_TRUE(of_etcd.query({round_of_two(Arbiter::kEtcd)}, kFive, kAnyTime).has_value());
}

// This round may be recorded by two nodes only. The previous round had four nodes, and its other two nodes may have elected
// another coordinator.
class UncommittedRound : public testing::Test {
 protected:
  UncommittedRound() {
    record_.coordinator.node = {1};
    record_.state.promised_term = 1;
    record_.state.previous = {.id = {1, 0}, .born = 1, .nodes = 4, .rank = -1};
  }
  bool may_campaign_with(LinkId link, const Hello& voter) {
    LeaderElection succession{Rules{}};
    succession.add(link, voter);
    return succession
        .next_attempt({.id = {2}, .state = record_.state, .candidate_rank = 1, .may_campaign_at = kAnyTime, .lease = kFive})
        .has_value();
  }
  Record record_;
};

TEST_F(UncommittedRound, IsNotCommittedByADeathNotice) {
  record_.state.current = round_of_two(Arbiter::kNone);
  const DeadCoordinator dead{{1}, record_.state.current.origin()};
  EXPECT_FALSE(may_campaign_with(kDeadVoterLink, hello_of_dead(dead, record_).value()));
  record_.state.previous = {};
  EXPECT_TRUE(may_campaign_with(kDeadVoterLink, hello_of_dead(dead, record_).value()));
}

TEST_F(UncommittedRound, IsNotCommittedByAnArbiter) {
  record_.state.current = round_of_two(Arbiter::kEtcd);
  Arbitration arbitration(Rules{}, Config{});
  EXPECT_FALSE(arbitration.voter(record_).has_value());
  arbitration.receive({Arbiter::kEtcd, {1}, {1, 1}}, BallotAnswer::kMine, "", kAnyTime);
  ASSERT_TRUE(arbitration.voter(record_).has_value());
  EXPECT_FALSE(may_campaign_with(kArbiterVoterLink, *arbitration.voter(record_)));
  record_.state.previous = {};
  EXPECT_TRUE(may_campaign_with(kArbiterVoterLink, *arbitration.voter(record_)));
}

TEST(RoundArbiter, IsTheOneThatBothNodesHave) {
  Peer one, other;
  const PlacedNodes placed{.by_rank = {&one, &other}, .placement = {}};
  CoordinatorSettings settings;
  const auto found = [&] { return arbitrated(placed, settings).arbiter; };
  EXPECT_EQ(found(), Arbiter::kNone);
  one.hello.run_directory = 3;
  EXPECT_EQ(found(), Arbiter::kNone);
  other.hello.run_directory = 4;
  EXPECT_EQ(found(), Arbiter::kNone);
  other.hello.run_directory = 3;
  EXPECT_EQ(found(), Arbiter::kRunDirectory);
  one.hello.arbiter = other.hello.arbiter = 5;
  EXPECT_EQ(found(), Arbiter::kEtcd);
  settings.min_nodes = 2;
  EXPECT_EQ(found(), Arbiter::kNone);
}

TEST(RoundArbiter, MustBeEqualOnAllNodes) {
  CoordinatorSettings settings;
  settings.self = {1};
  settings.max_nodes = 2;
  settings.arbiter = 5;
  Coordinator coordinator(settings, Authority{}, {kAnyTime, 0});
  coordinator.on(node_event::LinkOpened{7}, {kAnyTime, 0});
  Hello hello;
  hello.node = {2};
  hello.listens = {"10.0.0.2", 7};
  std::string refusal;
  for (const CoordinatorAction& action : coordinator.on(node_event::FromDialler{7, hello}, {kAnyTime, 0})) {
    const auto* send = std::get_if<node_action::ToDialler>(&action);
    const auto* refused = send == nullptr ? nullptr : std::get_if<Refused>(&send->message);
    if (refused != nullptr) refusal = refused->text;
  }
  EXPECT_EQ(refusal,
            "its --arbiter differs from the --arbiter of the coordinator; give every node the same --arbiter, or none");
}

}  // namespace
}  // namespace ddprun::rendezvous
