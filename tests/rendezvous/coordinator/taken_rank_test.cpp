// A requested rank that is already taken. A node that died without a message keeps its rank for one more lease, so a
// replacement is told when to retry. A living node keeps its rank.
#include <gtest/gtest.h>

#include <map>

#include "rendezvous/coordinator/coordinator.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr LinkId kHolder = 2;
constexpr LinkId kReplacement = 3;
constexpr LinkId kOnceMore = 4;

class ATakenRank : public testing::Test {
 protected:
  ATakenRank() : coordinator_(settings(), Authority{}, {time_, 0}) {
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
      const auto* send = std::get_if<coordinator_action::Send>(&action);
      if (send == nullptr) continue;
      if (const auto* refused = std::get_if<Refused>(&send->message)) refused_[send->link] = *refused;
      if (std::holds_alternative<Welcome>(send->message)) ++welcomed_[send->link];
      if (const auto* pong = std::get_if<Pong>(&send->message)) stamps_[send->link] = pong->stamp;
    }
  }
  void join(LinkId link, std::uint8_t node, std::int32_t rank) {
    on(coordinator_event::Opened{link});
    Hello hello;
    hello.node = {node};
    hello.incarnation = 1;
    hello.attempt = link + 1;
    hello.wanted_group_rank = rank;
    hello.hostname = "host" + std::to_string(node);
    hello.listens = {"10.0.0." + std::to_string(node), 7};
    on(coordinator_event::Heard{link, hello});
  }
  // Passes time until the refused node may retry; these links ping meanwhile.
  void wait_as_told(std::initializer_list<LinkId> links) {
    const Time end = time_ + milliseconds(refused_.at(kReplacement).retry_after_ms);
    for (; time_ < end; time_ += milliseconds(100)) {
      for (const LinkId link : links) {
        on(coordinator_event::Heard{link, Ping{.stamp = stamp_of(time_), .echo = stamps_[link], .realtime_ns = 0}});
      }
      on(coordinator_event::Tick{});
    }
  }

  Time time_{std::chrono::seconds(1000)};
  Coordinator coordinator_;
  std::map<LinkId, Refused> refused_;
  std::map<LinkId, int> welcomed_;
  std::map<LinkId, std::int64_t> stamps_;
};

TEST_F(ATakenRank, IsFreeWhenTheReplacementOfOneThatIsGoneAsksAgain) {
  ASSERT_TRUE(refused_.contains(kReplacement));
  EXPECT_EQ(refused_.at(kReplacement).reason, Refusal::kRankTaken);
  wait_as_told({kSelfLink});
  join(kOnceMore, 3, 1);
  EXPECT_EQ(welcomed_[kOnceMore], 1);
}

TEST_F(ATakenRank, StaysTakenByOneThatIsThere) {
  wait_as_told({kSelfLink, kHolder});
  join(kOnceMore, 3, 1);
  EXPECT_EQ(welcomed_[kOnceMore], 0);
  EXPECT_EQ(refused_.at(kOnceMore).reason, Refusal::kRankTaken);
}

}  // namespace
}  // namespace ddprun::rendezvous
