// A surplus node of the same job receives a notice and waits as a spare. A node of another job is refused.
#include <gtest/gtest.h>

#include <map>

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
    for (CoordinatorAction& action : coordinator_.on(event, {time_, 0})) {
      const auto* send = std::get_if<coordinator_action::Send>(&action);
      if (send == nullptr) continue;
      if (const auto* refused = std::get_if<Refused>(&send->message)) refused_[send->link] = *refused;
      if (const auto* waiting = std::get_if<Waiting>(&send->message)) waits_[send->link] = waiting->text;
      if (std::holds_alternative<Welcome>(send->message)) ++welcomed_[send->link];
      if (std::holds_alternative<Release>(send->message)) ++released_[send->link];
    }
  }
  // The node's id equals the number of its link.
  void join(LinkId link, std::uint64_t command, std::int32_t min_nodes = 2, std::int32_t max_nodes = 2) {
    on(coordinator_event::Opened{link});
    Hello hello;
    hello.node = {static_cast<std::uint8_t>(link)};
    if (link == kSelfLink) hello.node = {1};
    hello.incarnation = 1;
    hello.attempt = 1;
    hello.hostname = "host";
    hello.listens = {"10.0.0.1", static_cast<std::uint16_t>(7 + link)};
    hello.command = command;
    hello.min_nodes = min_nodes;
    hello.max_nodes = max_nodes;
    on(coordinator_event::Heard{link, hello});
    on(coordinator_event::Heard{link, Ping{.stamp = stamp_of(time_), .echo = stamp_of(time_), .realtime_ns = 0}});
    on(coordinator_event::Heard{link, Ready{}});
  }

  Time time_{std::chrono::seconds(1000)};
  Coordinator coordinator_{settings(), Authority{}, {time_, 0}};
  std::map<LinkId, Refused> refused_;
  std::map<LinkId, std::string> waits_;
  std::map<LinkId, int> welcomed_;
  std::map<LinkId, int> released_;
};

TEST_F(Surplus, OfAnotherProgramIsRefusedOnceTheJobIsComplete) {
  join(kSelfLink, kCommand);
  join(5, kOtherCommand);  // needed, so accepted: nodes of a job may differ in their arguments
  EXPECT_EQ(welcomed_[5], 1);
  join(6, kOtherCommand);
  EXPECT_EQ(welcomed_[6], 0);
  ASSERT_TRUE(refused_.contains(6));
  EXPECT_NE(refused_.at(6).text.find("another program or other arguments"), std::string::npos) << refused_.at(6).text;
  EXPECT_GT(refused_.at(6).retry_after_ms, 0) << "one of the two may be gone without a message";
  join(7, 0);  // `ddprun join` gets the command from the job
  EXPECT_EQ(welcomed_[7], 1);
}

TEST_F(Surplus, OfTheSameProgramReceivesANoticeThatItIsASpare) {
  join(kSelfLink, kCommand);
  join(5, kCommand);
  ASSERT_EQ(released_[5], 1);
  EXPECT_FALSE(waits_.contains(5));
  join(6, kCommand);
  EXPECT_EQ(welcomed_[6], 1);
  EXPECT_EQ(waits_[6], "the job already runs on 2 of 2 nodes: this node is a spare and joins if one of them is lost");
}

TEST_F(Surplus, WithOtherNodeCountsIsRefusedEvenIfNeeded) {
  join(kSelfLink, kCommand);
  join(5, kCommand, 3, 3);
  join(6, kCommand, 1, 2);
  EXPECT_EQ(welcomed_[5] + welcomed_[6], 0);
  ASSERT_TRUE(refused_.contains(5) && refused_.contains(6));
  EXPECT_NE(refused_.at(5).text.find("--nnodes 3, the job at this address has --nnodes 2;"), std::string::npos);
  EXPECT_NE(refused_.at(6).text.find("--nnodes 1:2, the job"), std::string::npos) << refused_.at(6).text;
  EXPECT_EQ(refused_.at(5).retry_after_ms, 0);
  join(7, kCommand, 0, 0);
  EXPECT_EQ(welcomed_[7], 1);
}

}  // namespace
}  // namespace ddprun::rendezvous
