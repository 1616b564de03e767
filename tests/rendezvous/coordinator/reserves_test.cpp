// Tests nodes on hosts that failed often (--exclude-failing-nodes): they take part only if the job needs them.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "rendezvous/coordinator/coordinator.hpp"

namespace ddprun::rendezvous {
namespace {

class Reserves : public testing::Test {
 protected:
  // Starts a job of min_nodes to max_nodes nodes. The hosts in `failing` failed often. Node 1 is the coordinator.
  void begin(std::int32_t min_nodes, std::int32_t max_nodes, std::set<std::string> failing) {
    CoordinatorSettings settings;
    settings.self = {1};
    settings.min_nodes = min_nodes;
    settings.max_nodes = max_nodes;
    settings.failing_hosts = std::move(failing);
    coordinator_.emplace(settings, Authority{}, Now{time_, 0});
    join(1);
  }
  void on(const CoordinatorEvent& event) {
    for (CoordinatorAction& action : coordinator_->on(event, {time_, 0})) {
      if (const auto* notice = std::get_if<NodeNotice>(&action); notice != nullptr && notice->kind == NodeNotice::Kind::kLost)
        failed_hosts_.push_back(notice->failed_host);
      const auto* send = std::get_if<node_action::ToDialler>(&action);
      if (send == nullptr) continue;
      const int node = node_of(send->link);
      if (const auto* waiting = std::get_if<Waiting>(&send->message)) waits_[node] = waiting->text;
      if (const auto* welcome = std::get_if<Welcome>(&send->message)) welcome_hostname_ = welcome->hostname;
      if (const auto* release = std::get_if<Release>(&send->message)) {
        rank_[node] = release->start ? release->group_rank : -1;
        round_ = release->id;
        nodes_ = release->nodes;
      }
      if (std::holds_alternative<RoundOver>(send->message)) ++rounds_over_;
    }
  }
  static LinkId link_of(int node) { return node == 1 ? kSelfLink : static_cast<LinkId>(node); }
  static int node_of(LinkId link) { return link == kSelfLink ? 1 : static_cast<int>(link); }

  // Lets a node join. Node n has the host name "h<n>".
  void join(int node) {
    const LinkId link = link_of(node);
    on(node_event::LinkOpened{link});
    Hello hello;
    hello.node = {static_cast<std::uint8_t>(node)};
    hello.incarnation = 1;
    hello.attempt = ++hellos_;
    hello.hostname = "h" + std::to_string(node);
    hello.listens = {"10.0.0.1", static_cast<std::uint16_t>(7 + node)};
    on(node_event::FromDialler{link, hello});
    ping(node);
    on(node_event::FromDialler{link, Ready{}});
  }
  void ping(int node) {
    on(node_event::FromDialler{link_of(node),
                               Ping{.stamp = stamp_of(time_), .echo = stamp_of(time_), .realtime_ns = 0, .installed = round_}});
  }
  // Advances the time. During that time, the nodes in `nodes` send pings.
  void wait(int seconds, const std::vector<int>& nodes) {
    for (int i = 0; i < seconds; ++i) {
      time_ += std::chrono::seconds(1);
      for (const int node : nodes) ping(node);
      on(node_event::Tick{});
    }
  }
  void ready_again(int node) { on(node_event::FromDialler{link_of(node), Ready{.round = round_, .master_port = 1}}); }

  Time time_{std::chrono::seconds(1000)};
  std::optional<Coordinator> coordinator_;
  std::map<int, std::string> waits_;  // the newest Waiting message to each node
  std::map<int, std::int32_t> rank_;  // group rank in the newest round; -1 for a spare
  std::vector<std::string> failed_hosts_;
  std::string welcome_hostname_;
  RoundId round_{};
  std::int32_t nodes_ = 0;  // number of nodes in the newest round
  int rounds_over_ = 0;
  std::uint64_t hellos_ = 0;
};

TEST_F(Reserves, AFailingNodeIsExcludedIfEnoughOthersAreReady) {
  begin(2, 4, {"h2"});
  join(2);
  join(3);
  wait(5, {1, 2, 3});
  EXPECT_EQ(nodes_, 2);
  EXPECT_EQ(rank_, (std::map<int, std::int32_t>{{1, 0}, {2, -1}, {3, 1}}));
  EXPECT_NE(waits_[2].find("this node failed several times in the last days, so it waits as a spare"), std::string::npos);
  EXPECT_NE(waits_[2].find("fewer than 2 other nodes"), std::string::npos) << waits_[2];
  wait(60, {1, 2, 3});
  EXPECT_EQ(rounds_over_, 0) << "a waiting reserve ends no round";
  join(4);
  wait(10, {1, 2, 3, 4});
  EXPECT_GT(rounds_over_, 0) << "another node joins the running job";
  for (const int node : {1, 3}) ready_again(node);
  wait(3, {1, 2, 3, 4});
  EXPECT_EQ(nodes_, 3);
  EXPECT_EQ(rank_[2], -1);
}

TEST_F(Reserves, AFailingNodeTakesPartIfTheJobNeedsIt) {
  begin(2, 4, {"h2"});
  join(2);
  wait(5, {1, 2});
  EXPECT_EQ(nodes_, 2);
  EXPECT_EQ(rank_[2], 1);
  EXPECT_FALSE(waits_.contains(2));
}

TEST_F(Reserves, OnlyAsManyAsNeededTakePart) {
  begin(3, 5, {"h2", "h3"});
  for (const int node : {2, 3, 4}) join(node);
  wait(5, {1, 2, 3, 4});
  EXPECT_EQ(nodes_, 3);
  EXPECT_EQ((rank_[2] < 0) + (rank_[3] < 0), 1) << "one of the two is needed";
  EXPECT_GE(rank_[4], 0);
}

TEST_F(Reserves, AReserveReplacesALostNode) {
  begin(2, 4, {"h2"});
  join(2);
  join(3);
  wait(5, {1, 2, 3});
  ASSERT_EQ(rank_[2], -1);
  on(node_event::LinkClosed{3});
  ready_again(1);
  wait(5, {1, 2});
  EXPECT_EQ(nodes_, 2);
  EXPECT_GE(rank_[2], 0);
  EXPECT_EQ(failed_hosts_, std::vector<std::string>{"h3"});
}

TEST_F(Reserves, TheCoordinatorsNodeAndAJobThatNeedsAllNodesExcludeNothing) {
  begin(2, 4, {"h1"});
  join(2);
  join(3);
  wait(5, {1, 2, 3});
  EXPECT_EQ(nodes_, 3);
  EXPECT_EQ(rank_[1], 0);
  EXPECT_EQ(welcome_hostname_, "h1");
  begin(2, 2, {"h2"});
  join(2);
  wait(5, {1, 2});
  EXPECT_EQ(nodes_, 2);
}

TEST_F(Reserves, ANodeThatLeavesHasNotFailed) {
  begin(2, 4, {});
  join(2);
  join(3);
  wait(5, {1, 2, 3});
  on(node_event::FromDialler{link_of(3), Leave{"a signal"}});
  EXPECT_EQ(failed_hosts_, std::vector<std::string>{""});
}

}  // namespace
}  // namespace ddprun::rendezvous
