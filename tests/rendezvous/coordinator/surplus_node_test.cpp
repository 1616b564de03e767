// Tests a node beyond the maximum of --nnodes. A node of the same job waits as a spare and is informed of the reason. A node
// of another job is refused.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>

#include "rendezvous/coordinator/coordinator.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr std::uint64_t kCommand = 11;
constexpr std::uint64_t kOtherCommand = 12;

class Surplus : public testing::Test {
 protected:
  static CoordinatorSettings settings() {
    CoordinatorSettings settings;
    settings.self = {1};
    settings.min_nodes = settings.max_nodes = 2;
    settings.command = kCommand;
    return settings;
  }
  void on(const CoordinatorEvent& event) {
    for (CoordinatorAction& action : coordinator_->on(event, {time_, 0})) {
      const auto* send = std::get_if<node_action::ToDialler>(&action);
      if (send == nullptr) continue;
      if (const auto* refused = std::get_if<Refused>(&send->message)) refused_[send->link] = *refused;
      if (const auto* waiting = std::get_if<Waiting>(&send->message)) waits_[send->link] = waiting->text;
      if (std::holds_alternative<Welcome>(send->message)) ++welcomed_[send->link];
      if (const auto* release = std::get_if<Release>(&send->message)) {
        ++released_[send->link];
        newest_round_ = release->id;
      }
    }
  }
  // Adds a node whose node id equals the number of its link.
  void join(LinkId link, std::uint64_t command, std::int32_t min_nodes = 2, std::int32_t max_nodes = 2) {
    join_as(link == kSelfLink ? 1 : static_cast<std::uint8_t>(link), link, command, min_nodes, max_nodes);
  }
  void join_as(std::uint8_t node, LinkId link, std::uint64_t command, std::int32_t min_nodes = 2, std::int32_t max_nodes = 2) {
    on(node_event::LinkOpened{link});
    Hello hello;
    hello.node = {node};
    hello.incarnation = 1;
    hello.attempt = ++hellos_;
    hello.hostname = "host";
    hello.listens = {"10.0.0.1", static_cast<std::uint16_t>(7 + link)};
    hello.command = command;
    hello.min_nodes = min_nodes;
    hello.max_nodes = max_nodes;
    on(node_event::FromDialler{link, hello});
    on(node_event::FromDialler{link, Ping{.stamp = stamp_of(time_), .echo = stamp_of(time_), .realtime_ns = 0}});
    on(node_event::FromDialler{link, Ready{}});
  }

  Time time_{std::chrono::seconds(1000)};
  std::optional<Coordinator> coordinator_{std::in_place, settings(), Authority{}, Now{time_, 0}};
  std::map<LinkId, Refused> refused_;
  std::map<LinkId, std::string> waits_;
  std::map<LinkId, int> welcomed_;
  std::map<LinkId, int> released_;
  RoundId newest_round_;  // the newest round that the coordinator has started
  std::uint64_t hellos_ = 0;
};

TEST_F(Surplus, OfAnotherProgramIsRefusedByACompleteJob) {
  join(kSelfLink, kCommand);
  // This node is accepted even if its command line differs, because the job does not have all its nodes yet, and command lines
  // may differ between nodes.
  join(5, kOtherCommand);
  EXPECT_EQ(welcomed_[5], 1);
  join(6, kOtherCommand);
  EXPECT_EQ(welcomed_[6], 0);
  ASSERT_TRUE(refused_.contains(6));
  EXPECT_NE(refused_.at(6).text.find("another program or other arguments"), std::string::npos) << refused_.at(6).text;
  EXPECT_GT(refused_.at(6).retry_after_ms, 0) << "one of the two may be gone without a message";
  join(7, 0);  // command 0 means `ddprun join`: this node gets the command from the job
  EXPECT_EQ(welcomed_[7], 1);
}

TEST_F(Surplus, ExcludesANodeThatConnectsAgain) {
  join(kSelfLink, kCommand);
  join(5, kOtherCommand);
  join_as(5, 8, kOtherCommand);  // the coordinator has not detected yet that the node's first connection is lost
  EXPECT_FALSE(refused_.contains(8));
  EXPECT_EQ(welcomed_[8], 1);
}

TEST_F(Surplus, OfTheSameProgramBecomesASpare) {
  join(kSelfLink, kCommand);
  join(5, kCommand);
  ASSERT_EQ(released_[5], 1);
  EXPECT_FALSE(waits_.contains(5));
  join(6, kCommand);
  EXPECT_EQ(welcomed_[6], 1);
  EXPECT_EQ(waits_[6], "the job already runs on 2 of 2 nodes: this node waits as a spare and joins if one of them is lost");
}

TEST_F(Surplus, SpareIsNotifiedAgainInALaterRound) {
  join(kSelfLink, kCommand);
  for (const LinkId link : {5, 6, 7}) join(link, kCommand);
  waits_.clear();
  const auto ping = [&](LinkId link) {
    on(node_event::FromDialler{
        link, Ping{.stamp = stamp_of(time_), .echo = stamp_of(time_), .realtime_ns = 0, .installed = newest_round_}});
  };
  for (const LinkId link : {LinkId{kSelfLink}, LinkId{5}}) ping(link);
  const RoundId first = newest_round_;
  on(node_event::FromDialler{5, Leave{"a signal"}});
  on(node_event::FromDialler{kSelfLink, Ready{.round = first, .master_port = 1}});
  ASSERT_NE(newest_round_, first);
  EXPECT_EQ(waits_.count(6) + waits_.count(7), 1U);
}

// The job runs with fewer nodes than its maximum, so it admits this node in the next round. The node is not a spare.
TEST_F(Surplus, ExcludesANodeThatTheJobNeeds) {
  CoordinatorSettings fewer = settings();
  fewer.min_nodes = 1;
  coordinator_.emplace(fewer, Authority{}, Now{time_, 0});
  join(kSelfLink, kCommand, 1, 2);
  time_ += fewer.last_call;
  on(node_event::Tick{});
  ASSERT_EQ(released_[kSelfLink], 1);
  join(5, kCommand, 1, 2);
  EXPECT_EQ(welcomed_[5], 1);
  EXPECT_FALSE(waits_.contains(5)) << waits_.at(5);
}

TEST_F(Surplus, WithOtherNodeCountsIsRefusedEvenIfNeeded) {
  join(kSelfLink, kCommand);
  join(5, kCommand, 3, 3);
  join(6, kCommand, 1, 2);
  join(8, kCommand, 2, 3);
  EXPECT_EQ(welcomed_[5] + welcomed_[6] + welcomed_[8], 0);
  ASSERT_TRUE(refused_.contains(5) && refused_.contains(6) && refused_.contains(8));
  EXPECT_NE(refused_.at(5).text.find("--nnodes 3, the job at this address has --nnodes 2;"), std::string::npos);
  EXPECT_NE(refused_.at(6).text.find("--nnodes 1:2, the job"), std::string::npos) << refused_.at(6).text;
  EXPECT_EQ(refused_.at(5).retry_after_ms, 0);
  join(7, kCommand, 0, 0);
  EXPECT_EQ(welcomed_[7], 1);
}

}  // namespace
}  // namespace ddprun::rendezvous
