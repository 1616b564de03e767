// Tests a node that requests a rank which another node has. If that other node has died without closing its connection, it
// keeps its rank for one more lease, and its replacement is refused until then. A live node keeps its rank.
#include <gtest/gtest.h>

#include <map>

#include "rendezvous/coordinator/coordinator.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr LinkId kHolder = 2;
constexpr LinkId kReplacement = 3;
constexpr LinkId kRetry = 4;

class TakenRank : public testing::Test {
 protected:
  TakenRank() : coordinator_(settings(), Authority{}, {time_, 0}) {
    join(kSelfLink, 1, 0);
    join(kHolder, 2, 1);
    join(kReplacement, 3, 1);
  }
  static CoordinatorSettings settings() {
    CoordinatorSettings settings;
    settings.self = {1};
    settings.min_nodes = settings.max_nodes = 2;
    return settings;
  }
  void on(const CoordinatorEvent& event) {
    for (CoordinatorAction& action : coordinator_.on(event, {time_, 0})) {
      const auto* send = std::get_if<node_action::ToDialler>(&action);
      if (send == nullptr) continue;
      if (const auto* refused = std::get_if<Refused>(&send->message)) refused_[send->link] = *refused;
      if (std::holds_alternative<Welcome>(send->message)) ++welcomed_[send->link];
      if (const auto* pong = std::get_if<Pong>(&send->message)) stamps_[send->link] = pong->stamp;
    }
  }
  void join(LinkId link, std::uint8_t node, std::int32_t rank) {
    on(node_event::LinkOpened{link});
    Hello hello;
    hello.node = {node};
    hello.incarnation = 1;
    hello.attempt = link + 1;
    hello.wanted_group_rank = rank;
    hello.hostname = "host" + std::to_string(node);
    hello.listens = {"10.0.0." + std::to_string(node), 7};
    on(node_event::FromDialler{link, hello});
  }
  // Advances the time until the refused node may retry. During that time, the nodes of `links` send pings.
  void wait_for_retry(std::initializer_list<LinkId> links) {
    const Time end = time_ + milliseconds(refused_.at(kReplacement).retry_after_ms);
    for (; time_ < end; time_ += milliseconds(100)) {
      for (const LinkId link : links) {
        on(node_event::FromDialler{link, Ping{.stamp = stamp_of(time_), .echo = stamps_[link], .realtime_ns = 0}});
      }
      on(node_event::Tick{});
    }
  }

  Time time_{std::chrono::seconds(1000)};
  Coordinator coordinator_;
  std::map<LinkId, Refused> refused_;
  std::map<LinkId, int> welcomed_;
  std::map<LinkId, std::int64_t> stamps_;
};

TEST_F(TakenRank, IsFreeAfterItsHolderIsLost) {
  ASSERT_TRUE(refused_.contains(kReplacement));
  EXPECT_EQ(refused_.at(kReplacement).reason, Refusal::kRankTaken);
  wait_for_retry({kSelfLink});
  join(kRetry, 3, 1);
  EXPECT_EQ(welcomed_[kRetry], 1);
}

TEST_F(TakenRank, StaysTakenByAConnectedNode) {
  wait_for_retry({kSelfLink, kHolder});
  join(kRetry, 3, 1);
  EXPECT_EQ(welcomed_[kRetry], 0);
  EXPECT_EQ(refused_.at(kRetry).reason, Refusal::kRankTaken);
}

}  // namespace
}  // namespace ddprun::rendezvous
