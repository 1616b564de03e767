// Tests how a node without a coordinator answers the nodes that dial it.
#include "rendezvous/node/node.hpp"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;

class OneNode : public testing::Test {
 protected:
  OneNode() : node_(settings(), {}, now()) { node_.on(node_event::Begin{}, now()); }

  static NodeSettings settings() {
    NodeSettings settings;
    settings.member.node = {2};
    settings.member.listens = {"10.0.0.2", 7};
    settings.member.endpoints = {{"10.0.0.1", 29400}};
    return settings;
  }
  static Now now() { return {Time(seconds(1000)), 0}; }
  std::vector<NodeAction> receive(const Hello& hello) {
    node_.on(node_event::LinkOpened{.link = 5, .local_host = {}}, now());
    return node_.on(node_event::FromDialler{.link = 5, .message = hello}, now());
  }
  static Hello hello() {
    Hello hello;
    hello.node = {3};
    hello.listens = {"10.0.0.3", 7};
    return hello;
  }
  static const Refused* refusal(const std::vector<NodeAction>& actions) {
    for (const NodeAction& action : actions) {
      const auto* to = std::get_if<node_action::ToDialler>(&action);
      if (to != nullptr && std::holds_alternative<Refused>(to->message)) return &std::get<Refused>(to->message);
    }
    return nullptr;
  }

  Node node_;
};

TEST_F(OneNode, AcceptsAPlausibleVoter) {
  EXPECT_EQ(refusal(receive(hello())), nullptr);
}

// A voter reports a round that cannot exist. If that round counted as the newest, no candidate could win an election, because
// no majority has installed that round.
TEST_F(OneNode, RefusesAVoterWithImpossibleRounds) {
  Hello voter = hello();
  voter.state.promised_term = ~std::uint64_t{0};
  voter.state.current = Config{.id = {~std::uint64_t{0}, 1}, .born = 1, .nodes = 3, .rank = 1};
  const auto actions = receive(voter);
  ASSERT_NE(refusal(actions), nullptr);
  EXPECT_EQ(refusal(actions)->reason, Refusal::kBadHello);
}

}  // namespace
}  // namespace ddprun::rendezvous
