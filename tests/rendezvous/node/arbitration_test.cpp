// Arbiters, in cases that few seeds of the simulator show: which round has one, for which round it is queried, and the value of
// its vote in an uncommitted round. Also the vote of a dead coordinator.
#include "rendezvous/node/arbitration.hpp"

#include <gtest/gtest.h>

#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/coordinator/release.hpp"
#include "rendezvous/node/farewell.hpp"
#include "rendezvous/node/succession.hpp"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kAnyTime{seconds(1000)};
constexpr nanoseconds kFive = seconds(5);

Config round_of_two(Arbiter arbiter, std::int64_t number = 1, std::int32_t rank = 1) {
  return {.id = {1, number}, .born = 1, .nodes = 2, .rank = rank, .arbiter = arbiter, .founder = {1}};
}

TEST(Arbitration, AsksOneThingAtATimeAndAgainAfterAPause) {
  Arbitration arbitration(Rules{}, Config{});
  const std::vector<Config> rounds{round_of_two(Arbiter::kEtcd, 2), round_of_two(Arbiter::kEtcd, 1)};
  const auto first = arbitration.ask(rounds, kFive, kAnyTime);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->origin, (RoundId{1, 2}));
  EXPECT_FALSE(arbitration.ask(rounds, kFive, kAnyTime).has_value());
  arbitration.hear(*first, BallotAnswer::kNone, "nobody is there", kAnyTime);
  EXPECT_EQ(arbitration.next_deadline(), kAnyTime + milliseconds(500));
  EXPECT_FALSE(arbitration.ask(rounds, kFive, kAnyTime).has_value());
  EXPECT_EQ(arbitration.why_not(), ": nobody is there");
  const auto again = arbitration.ask(rounds, kFive, kAnyTime + milliseconds(500));
  EXPECT_EQ(again, first);
  arbitration.hear(*again, BallotAnswer::kMine, "", kAnyTime);
  const auto other = arbitration.ask(rounds, kFive, kAnyTime + seconds(1));
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->origin, (RoundId{1, 1}));
  arbitration.hear(*other, BallotAnswer::kOthers, "", kAnyTime);
  EXPECT_FALSE(arbitration.ask(rounds, kFive, kAnyTime + seconds(2)).has_value());
}

// The path may lead to another folder by now.
TEST(Arbitration, AnAgentThatWasStartedAnewAsksNoRunDirectoryForTheRoundOfBefore) {
  const Config before = round_of_two(Arbiter::kRunDirectory);
  Arbitration arbitration(Rules{}, before);
  EXPECT_FALSE(arbitration.ask({before}, kFive, kAnyTime).has_value());
  EXPECT_NE(arbitration.why_not(), "");
  EXPECT_TRUE(arbitration.ask({round_of_two(Arbiter::kRunDirectory, 2)}, kFive, kAnyTime).has_value());
  Arbitration of_etcd(Rules{}, round_of_two(Arbiter::kEtcd));
  EXPECT_TRUE(of_etcd.ask({round_of_two(Arbiter::kEtcd)}, kFive, kAnyTime).has_value());
}

// Perhaps only its own two nodes know the round. Of the four nodes of the previous round, two others may have elected another
// coordinator.
class UncommittedRound : public testing::Test {
 protected:
  UncommittedRound() {
    record_.coordinator.node = {1};
    record_.state.promised_term = 1;
    record_.state.previous = {.id = {1, 0}, .born = 1, .nodes = 4, .rank = -1};
  }
  bool may_stand_with(LinkId link, const Hello& elector) {
    Succession succession{Rules{}};
    succession.add(link, elector);
    return succession
        .next_attempt({.id = {2}, .state = record_.state, .place_in_line = 1, .may_stand_at = kAnyTime, .lease = kFive})
        .has_value();
  }
  Record record_;
};

TEST_F(UncommittedRound, IsNotCommittedByAFarewell) {
  record_.state.current = round_of_two(Arbiter::kNone);
  const DeadCoordinator dead{{1}, record_.state.current.origin()};
  EXPECT_FALSE(may_stand_with(kOfTheDead, hello_of_the_dead(dead, record_).value()));
  record_.state.previous = {};
  EXPECT_TRUE(may_stand_with(kOfTheDead, hello_of_the_dead(dead, record_).value()));
}

TEST_F(UncommittedRound, IsNotCommittedByAnArbiter) {
  record_.state.current = round_of_two(Arbiter::kEtcd);
  Arbitration arbitration(Rules{}, Config{});
  EXPECT_FALSE(arbitration.elector(record_).has_value());
  arbitration.hear({Arbiter::kEtcd, {1}, {1, 1}}, BallotAnswer::kMine, "", kAnyTime);
  ASSERT_TRUE(arbitration.elector(record_).has_value());
  EXPECT_FALSE(may_stand_with(kOfTheArbiter, *arbitration.elector(record_)));
  record_.state.previous = {};
  EXPECT_TRUE(may_stand_with(kOfTheArbiter, *arbitration.elector(record_)));
}

TEST(ARoundsArbiter, IsOneThatBothNodesNameAndThatMayBeNeeded) {
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

TEST(ARoundsArbiter, IsTheSameForAllNodes) {
  CoordinatorSettings settings;
  settings.self = {1};
  settings.max_nodes = 2;
  settings.arbiter = 5;
  Coordinator coordinator(settings, Authority{}, {kAnyTime, 0});
  coordinator.on(coordinator_event::Opened{7}, {kAnyTime, 0});
  Hello hello;
  hello.node = {2};
  hello.listens = {"10.0.0.2", 7};
  std::string said;
  for (const CoordinatorAction& action : coordinator.on(coordinator_event::Heard{7, hello}, {kAnyTime, 0})) {
    const auto* send = std::get_if<coordinator_action::Send>(&action);
    const auto* refused = send == nullptr ? nullptr : std::get_if<Refused>(&send->message);
    if (refused != nullptr) said = refused->text;
  }
  EXPECT_EQ(said, "it has another --arbiter than the coordinator, or only one of both has one; give every node the same");
}

}  // namespace
}  // namespace ddprun::rendezvous
