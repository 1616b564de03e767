// Tests the second of two nodes, after the guardian process of the first node has sent a death notice. The second node leads at
// its published address, and keeps the vote of the dead node in later elections. A refused connection must not count as a death
// notice.
#include <gtest/gtest.h>

#include "common/base/exit_code.hpp"
#include "rendezvous/node/departed_voters.hpp"
#include "rendezvous/node/node.hpp"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;

constexpr LinkId kNewcomer = 10;

// The first coordinator transferred its leadership in round 0. The next coordinator then started round 1 without the first
// one. The Hello on behalf of the first coordinator must contain round 1 too.
TEST(DepartedCoordinator, VotesInTheRoundOfItsSuccessor) {
  const Config before{.id = {1, 0}, .born = 1, .nodes = 2, .rank = 1};
  const TransferLeadership transfer{.node = {1},
                                    .state = {.promised_term = 1, .current = {.id = {1, 0}, .born = 1, .nodes = 2, .rank = 0}}};
  Record successor;
  successor.state = {.promised_term = 2, .current = before};
  EXPECT_EQ(hello_of_departed(transfer, successor).state, transfer.state);

  successor.state.previous = before;
  successor.state.current = {.id = {2, 1}, .born = 2, .nodes = 2, .rank = 1};
  const PersistentState state = hello_of_departed(transfer, successor).state;
  EXPECT_EQ(state.current.origin(), (RoundId{2, 1}));
  EXPECT_EQ(state.current.rank, -1);
  EXPECT_EQ(state.previous.origin(), (RoundId{1, 0}));
  EXPECT_EQ(state.previous.rank, 0);
}

class Survivor : public testing::Test {
 protected:
  // Trains together with the first node, and then the first node dies.
  void start(std::int32_t min_nodes) {
    train_with_the_first(min_nodes);
    on(node_event::LinkClosed{.link = *dialled_});
    on(node_event::DeathNoticeReceived{{1, 0}});
    pass(seconds(1));
  }
  void train_with_the_first(std::int32_t min_nodes) {
    NodeSettings settings;
    settings.member.node = {2};
    settings.member.listens = {"", 7};
    settings.member.own_host = "10.9.9.9";
    settings.member.master_port = 8;
    settings.member.endpoints = {{"10.0.0.1", 29400}};
    settings.coordinator.min_nodes = min_nodes;
    settings.coordinator.max_nodes = 2;
    node_.emplace(settings, RestoredState{}, now());
    on(node_event::Begin{});
    ASSERT_TRUE(dialled_);
    const LinkId first = *dialled_;
    on(node_event::LinkOpened{.link = first, .local_host = "10.0.0.2", .own_host = "10.0.0.2"});
    on(node_event::FromListener{first, Welcome{.term = 1, .coordinator = {1}, .lease_ms = 5000}});
    Release release{.id = {1, 0}, .born = 1, .group_rank = 1, .nodes = 2, .world_size = 2, .master = {"10.0.0.1", 9}};
    release.coordinator = {.group_rank = 0, .node = {1}, .address = {"10.0.0.1", 29401}};
    on(node_event::FromListener{first, release});
  }
  // Sends a Hello of a node without a recorded round. That node has promised the term `promised`.
  void newcomer_sends_hello(std::uint64_t promised) {
    Hello hello;
    hello.node = {3};
    hello.listens = {"10.0.0.1", 77};
    hello.attempt = ++hellos_;
    hello.state.promised_term = promised;
    on(node_event::LinkOpened{.link = kNewcomer + hellos_, .local_host = {}});
    on(node_event::FromDialler{.link = kNewcomer + hellos_, .message = hello});
  }
  Now now() const { return {Time(nanoseconds(at_)), 0}; }
  void pass(nanoseconds time) {
    const nanoseconds end = at_ + time;
    while (true) {
      const auto next = node_->next_deadline();
      if (!next || next->time_since_epoch() > end) break;
      at_ = std::max(at_, nanoseconds(next->time_since_epoch()));
      on(node_event::Tick{});
      at_ += milliseconds(1);
    }
    at_ = end;
    on(node_event::Tick{});
  }
  void on(const NodeEvent& event) {
    std::vector<LinkId> refused;
    for (const NodeAction& action : node_->on(event, now())) {
      const auto* dial = std::get_if<node_action::Dial>(&action);
      if (dial != nullptr && !dialled_) dialled_ = dial->link;
      if (dial != nullptr && refused_) refused.push_back(dial->link);
      if (const auto* starts = std::get_if<member_action::StartWorkers>(&action)) started_ = starts->release;
      if (const auto* end = std::get_if<node_action::Finish>(&action)) finish_ = *end;
    }
    has_led_ = has_led_ || leads();
    if (refused_) *refused_ += static_cast<int>(refused.size());
    for (const LinkId link : refused) on(node_event::LinkClosed{.link = link});
  }
  bool leads() const { return node_->coordinator() != nullptr; }

  nanoseconds at_ = seconds(1000);
  std::optional<Node> node_;
  std::optional<LinkId> dialled_;
  std::uint64_t hellos_ = 0;
  std::optional<Release> started_;
  std::optional<node_action::Finish> finish_;
  std::optional<int> refused_;  // number of refused connections; nullopt if connections are not refused
  bool has_led_ = false;
};

// A healthy coordinator also refuses connections after it has closed the port to which all nodes first connect. A firewall may
// also refuse connections.
TEST_F(Survivor, RefusedConnectionIsNoProofOfDeath) {
  train_with_the_first(/*min_nodes=*/1);
  refused_ = 0;
  on(node_event::LinkClosed{.link = *dialled_});
  pass(seconds(60));
  EXPECT_GT(refused_, 10);
  EXPECT_FALSE(has_led_);
  EXPECT_FALSE(started_);
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->exit_code, static_cast<int>(ExitCode::kMinority)) << finish_->why;
}

// A node that leads has no connection to itself, so it cannot take its address from a connection. Regression: its workers got
// an empty MASTER_ADDR.
TEST_F(Survivor, LeadsAtItsPublishedAddress) {
  start(/*min_nodes=*/1);
  ASSERT_TRUE(leads());
  pass(seconds(10));
  ASSERT_TRUE(started_);
  EXPECT_EQ(started_->nodes, 1);
  EXPECT_EQ(started_->master, (Address{"10.0.0.2", 8}));
  EXPECT_EQ(started_->coordinator.address, (Address{"10.0.0.2", 7}));
}

// The agent of the first node is restarted after its record was lost. It cannot determine which terms were used, so it starts
// with a very high term. The survivor must still win an election, with a higher term.
TEST_F(Survivor, IsElectedAgainForANodeWithALaterTerm) {
  start(/*min_nodes=*/2);
  ASSERT_TRUE(leads());
  newcomer_sends_hello(std::uint64_t{1} << 40U);
  pass(milliseconds(100));
  newcomer_sends_hello(std::uint64_t{1} << 40U);
  pass(seconds(10));
  ASSERT_TRUE(leads());
  EXPECT_GT(node_->coordinator()->term(), std::uint64_t{1} << 40U);
  pass(seconds(60));
  EXPECT_FALSE(finish_) << finish_->why;
}

}  // namespace
}  // namespace ddprun::rendezvous
