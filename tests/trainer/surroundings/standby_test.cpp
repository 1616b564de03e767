// Tests how a standby (a process without a rank) waits for its rank. The message of the agent may arrive before or during the
// wait, or the connection to the agent may be lost.
#include "trainer/surroundings/standby.hpp"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

namespace ddprun::trainer {
namespace {

TEST(Standby, ReceivesItsRankBeforeOrWhileWaiting) {
  Standby early;
  early.on_message(channel::IgnoreSignal{});  // this message is not a rank assignment, so it is ignored
  early.on_message(channel::AssignRank{.rank = 2, .local_rank = 1, .restart_count = 4});
  early.on_agent_gone();  // the rank assignment had already arrived, so it still applies
  EXPECT_EQ(early.wait().rank, 2);

  Standby standby;
  auto waiting = std::async(std::launch::async, [&] { return standby.wait(); });
  standby.on_message(channel::AssignRank{.rank = 1, .local_rank = 1, .restart_count = 3});
  EXPECT_EQ(waiting.get().restart_count, 3);
}

TEST(Standby, EndsWithItsAgent) {
  Standby standby;
  auto waiting = std::async(std::launch::async, [&] { return standby.wait(); });
  standby.on_agent_gone();
  EXPECT_THROW(waiting.get(), std::runtime_error);
}

TEST(Standby, TakesTheAssignedRank) {
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
