// Waiting for a rank: the agent's message may come before or after the wait begins, and the agent may be gone.
#include "trainer/surroundings/standby.hpp"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

namespace ddprun::trainer {
namespace {

TEST(Standby, hearsOfItsRankWhenItWaitsAndBefore) {
  Standby early;
  early.on_message(channel::IgnoreSignal{});  // a message for another receiver
  early.on_message(channel::AssignRank{.rank = 2, .local_rank = 1, .restart_count = 4});
  early.on_agent_gone();  // the earlier message counts
  EXPECT_EQ(early.wait().rank, 2);

  Standby standby;
  auto waiting = std::async(std::launch::async, [&] { return standby.wait(); });
  standby.on_message(channel::AssignRank{.rank = 1, .local_rank = 1, .restart_count = 3});
  EXPECT_EQ(waiting.get().restart_count, 3);
}

TEST(Standby, doesNotOutliveItsAgent) {
  Standby standby;
  auto waiting = std::async(std::launch::async, [&] { return standby.wait(); });
  standby.on_agent_gone();
  EXPECT_THROW(waiting.get(), std::runtime_error);
}

TEST(Standby, takesThePlaceOfARankThatThereIs) {
  WorkerEnvironment environment;
  environment.world_size = environment.local_world_size = 2;
  take_place(environment, {.rank = 1, .local_rank = 1, .restart_count = 5});
  EXPECT_EQ(environment.rank, 1);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.restart_count, 5);
  EXPECT_THROW(take_place(environment, {.rank = 2, .local_rank = 0}), std::runtime_error);
  EXPECT_THROW(take_place(environment, {.rank = 0, .local_rank = -1}), std::runtime_error);
}

}  // namespace
}  // namespace ddprun::trainer
