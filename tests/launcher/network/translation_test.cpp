// Tests how the actions of AgentState are translated to events of the rendezvous member on this node.
#include "launcher/network/translation.hpp"

#include <gtest/gtest.h>

#include <variant>

namespace ddprun {
namespace {

TEST(Translation, RoundEndHasAllThatASaveNeeds) {
  using How = agent_action::ReportRoundOver::How;
  const auto ended = [](const agent_action::ReportRoundOver& over) {
    return std::get<rendezvous::member_event::WorkersEnded>(to_member(over, 2000));
  };
  EXPECT_TRUE(ended({.how = How::kEnded, .holds = true}).holds);
  EXPECT_FALSE(ended({.how = How::kEnded}).holds);
  EXPECT_FALSE(ended({.how = How::kEnded}).saved);
  EXPECT_TRUE(ended({.how = How::kSaved}).saved);
  EXPECT_EQ(ended({.how = How::kEnded, .leaves_with = 7}).leaves_with, 7);
}

}  // namespace
}  // namespace ddprun
