// Tests the decisions of the first node while `ddprun doctor` runs on all nodes of a job.
#include "launcher/doctor/nodes/gathering.hpp"

#include <gtest/gtest.h>

#include <set>

#include "common/base/overloaded.hpp"

namespace ddprun::doctor {
namespace {

using Time = Gathering::Time;

NodeReport report_of(const std::string& host) {
  return {.host = host, .port = 4000};
}

Gathering gathering_of(int min_nodes, int max_nodes) {
  return {
      report_of("n0"), {.min_nodes = min_nodes, .max_nodes = max_nodes, .wait = Time(60'000), .answer = Time(10'000)}, Time(0)};
}

// "clock 1, peers 0: 1 2, refuse 3, conclude"
std::string text_of_actions(const Gathering::Actions& actions) {
  std::string text;
  const Overloaded write{[](const Gathering::SendClockQuery& one) { return "clock " + std::to_string(one.link); },
                         [](const Gathering::SendPeers& one) {
                           std::string peers = "peers " + std::to_string(one.link) + ":";
                           for (const NodePeer& peer : one.list.peers) peers += " " + std::to_string(peer.id);
                           return peers;
                         },
                         [](const Gathering::Refuse& one) { return "refuse " + std::to_string(one.link); },
                         [](const Gathering::Conclude&) { return std::string("conclude"); }};
  for (const auto& action : actions) text += (text.empty() ? "" : ", ") + std::visit(write, action);
  return text;
}

TEST(Gathering, WhenAllNodesCameEachTestsTheOthers) {
  Gathering meeting = gathering_of(3, 3);
  EXPECT_EQ(text_of_actions(meeting.start(Time(0))), "");
  EXPECT_EQ(text_of_actions(meeting.arrived(1, report_of("n1"), "10.0.0.1", Time(10))), "clock 1");
  EXPECT_EQ(text_of_actions(meeting.arrived(2, report_of("n2"), "10.0.0.2", Time(20))),
            "clock 2, peers 0: 1 2, peers 1: 2 0, peers 2: 0 1");
  EXPECT_EQ(text_of_actions(meeting.answered(1, {})), "");
  EXPECT_EQ(text_of_actions(meeting.answered(1, {})), "") << "a second answer does not count";
  EXPECT_EQ(text_of_actions(meeting.answered(2, {{{.id = 1, .name_problem = "not known"}}})), "");
  EXPECT_EQ(text_of_actions(meeting.answered(Gathering::kSelf, {})), "conclude");
  ASSERT_EQ(meeting.nodes().size(), 3u);
  EXPECT_EQ(meeting.nodes()[1].label, "n1");
  EXPECT_EQ(meeting.nodes()[2].results[0].name_problem, "not known");
  EXPECT_TRUE(meeting.nodes()[2].is_complete);
  EXPECT_EQ(meeting.attendance().waited_s, 0.02);
}

TEST(Gathering, AfterTheLimitTheNodesThatCameAreCompared) {
  Gathering meeting = gathering_of(2, 4);
  meeting.start(Time(0));
  meeting.arrived(1, report_of("n1"), "10.0.0.1", Time(10));
  EXPECT_EQ(text_of_actions(meeting.tick(Time(59'999))), "");
  EXPECT_EQ(meeting.deadline(), Time(60'000));
  EXPECT_EQ(text_of_actions(meeting.tick(Time(60'000))), "peers 0: 1, peers 1: 0");
  EXPECT_EQ(text_of_actions(meeting.arrived(2, report_of("n2"), "10.0.0.2", Time(60'001))), "refuse 2");
  meeting.answered(Gathering::kSelf, {});
  EXPECT_EQ(text_of_actions(meeting.tick(Time(70'000))), "conclude") << "a node that does not answer";
  EXPECT_FALSE(meeting.nodes()[1].is_complete);
  EXPECT_EQ(meeting.attendance().waited_s, 60);
}

TEST(Gathering, ANodeWithoutPeersIsComparedImmediately) {
  Gathering alone = gathering_of(1, 1);
  EXPECT_EQ(text_of_actions(alone.start(Time(0))), "conclude");
  Gathering late = gathering_of(2, 2);
  late.start(Time(0));
  EXPECT_EQ(text_of_actions(late.tick(Time(60'000))), "conclude");
  EXPECT_EQ(late.nodes().size(), 1u);
}

TEST(Gathering, ALostNodeMayComeAgainUntilTheTestsStart) {
  Gathering meeting = gathering_of(3, 3);
  meeting.start(Time(0));
  meeting.arrived(1, report_of("n1"), "10.0.0.1", Time(10));
  EXPECT_EQ(text_of_actions(meeting.lost(1)), "");
  meeting.arrived(2, report_of("n1"), "10.0.0.1", Time(20));
  EXPECT_EQ(text_of_actions(meeting.arrived(3, report_of("n2"), "10.0.0.2", Time(30))),
            "clock 3, peers 0: 1 2, peers 2: 2 0, peers 3: 0 1");
  meeting.answered(Gathering::kSelf, {});
  meeting.answered(3, {});
  EXPECT_EQ(text_of_actions(meeting.lost(3)), "") << "it has answered already";
  EXPECT_EQ(text_of_actions(meeting.lost(2)), "conclude");
  EXPECT_FALSE(meeting.nodes()[1].is_complete);
  EXPECT_TRUE(meeting.nodes()[2].is_complete);
}

TEST(Gathering, ALoopbackAddressIsNotTestedFromOtherMachines) {
  Gathering meeting = gathering_of(3, 3);
  meeting.start(Time(0));
  meeting.arrived(1, report_of("n0"), "127.0.0.1", Time(10));
  const Gathering::Actions actions = meeting.arrived(2, report_of("n2"), "10.0.0.2", Time(20));
  const auto port_for = [&](Gathering::Link link, int id) {
    for (const auto& action : actions) {
      const auto* const send = std::get_if<Gathering::SendPeers>(&action);
      if (send == nullptr || send->link != link) continue;
      for (const NodePeer& peer : send->list.peers) {
        if (peer.id == id) return static_cast<int>(peer.port);
      }
    }
    return -1;
  };
  EXPECT_EQ(port_for(Gathering::kSelf, 1), 4000);
  EXPECT_EQ(port_for(2, 1), 0);
  EXPECT_EQ(port_for(1, 2), 4000);
}

TEST(Gathering, InALargeJobEachNodeIsTestedByTheSameNumberOfOthers) {
  constexpr int kNodes = 200;
  Gathering meeting = gathering_of(kNodes, kNodes);
  meeting.start(Time(0));
  Gathering::Actions actions;
  for (int i = 1; i < kNodes; ++i) {
    actions = meeting.arrived(static_cast<Gathering::Link>(i), report_of("n" + std::to_string(i)), "10.0.0.1", Time(i));
  }
  std::multiset<int> tested;
  for (const auto& action : actions) {
    const auto* const send = std::get_if<Gathering::SendPeers>(&action);
    if (send == nullptr) continue;
    EXPECT_EQ(send->list.peers.size(), Gathering::kMaxPeers);
    for (const NodePeer& peer : send->list.peers) tested.insert(peer.id);
  }
  for (int id = 0; id < kNodes; ++id) EXPECT_EQ(tested.count(id), Gathering::kMaxPeers);
}

TEST(Gathering, RefusedConnectionsAreBounded) {
  Gathering meeting = gathering_of(2, 2);
  for (int i = 0; i < 1000; ++i) meeting.refused("10.0.0.9: refused");
  EXPECT_LT(meeting.attendance().refused.size(), 10u);
}

}  // namespace
}  // namespace ddprun::doctor
