// A group is broken while a rank waits in it for another one that lives, and the next group works.
#include "trainer/parallel/group_breaker.hpp"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/trainer/parallel/ranks.hpp"
#include "trainer/parallel/channel_store.hpp"

namespace ddprun::trainer {
namespace {

using Bytes = std::vector<std::uint8_t>;

void expect_sum_of_two(const Rank& rank) {
  std::vector<at::Tensor> tensors{at::full({10}, rank.environment.rank + 1.0)};
  rank.group->allreduce(tensors)->wait();
  EXPECT_TRUE(tensors[0].equal(at::full({10}, 3.0)));
}

TEST(GroupBreaker, ThrowsARankOutOfACollectiveThatItsPeerNeverEnters) {
  GroupBreaker breaker;
  const auto rank = as_rank_of(2);
  if (!rank) return;
  expect_sum_of_two(*rank);
  if (rank->environment.rank == 0) {
    std::vector<at::Tensor> tensors{at::full({1 << 20}, 1.0)};
    const auto work = rank->group->allreduce(tensors);
    breaker.break_group();
    try {
      work->wait();
      ADD_FAILURE() << "the all-reduce came to an end";
    } catch (const std::exception& error) {
      EXPECT_TRUE(is_lost_peer(error)) << error.what();
    }
    rank->store->set("broken", Bytes{1});
  } else {
    rank->store->wait({"broken"});
    breaker.break_group();
  }
  rank->group.reset();
  breaker.mend();
  rank->group = make_process_group(rank->environment, rank->store, c10::kCPU, 1, kTestTimeout);
  expect_sum_of_two(*rank);
}

TEST(GroupBreaker, LeavesTheAgentsChannelAlone) {
  FakeAgent agent;
  GroupBreaker breaker;
  AgentChannel channel(agent.connect(), channel::Hello{}, nullptr);
  breaker.break_group();
  ChannelStore store(channel, kTestTimeout);
  store.set("key", Bytes{1, 2});
  EXPECT_EQ(store.get("key"), (Bytes{1, 2}));
  breaker.mend();
}

TEST(ChannelStore, OfAnOlderGroupStopsWaitingWhenARegroupIsOrdered) {
  FakeAgent agent;
  std::atomic<bool> told = false;
  AgentChannel channel(agent.connect(), channel::Hello{}, [&](const channel::FromAgent&) {
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // whoever is thrown out first would overtake
    told = true;
  });
  ChannelStore old_group(channel, kTestTimeout, 0);
  ChannelStore new_group(channel, kTestTimeout, 1);
  std::thread waiter([&] {
    EXPECT_THROW(old_group.wait({"key of a rank that is lost"}), std::runtime_error);
    EXPECT_TRUE(told);  // else it would take itself for the failed one
  });
  agent.say(channel::Regroup{.generation = 1});
  waiter.join();
  EXPECT_THROW(old_group.set("more", Bytes{1}), std::runtime_error);  // and does not begin again
  new_group.set("key", Bytes{3});
  EXPECT_EQ(new_group.get("key"), Bytes{3});
}

}  // namespace
}  // namespace ddprun::trainer
