// A worker that is cut off from its group: it holds its state until the agent sends it a rank. Its own errors end it. The agent
// is simulated in this process.
#include "trainer/job/recovery.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <future>
#include <stdexcept>

#include "common/base/error.hpp"
#include "tests/trainer/surroundings/fake_agent.hpp"
#include "trainer/reading/source_error.hpp"
#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {
namespace {

using namespace std::chrono_literals;

channel::Regroup place(int generation, int rank, int world) {
  return {.generation = generation, .rank = rank, .world_size = world, .group_rank = 1, .group_world_size = 2};
}

std::exception_ptr lost_peer() {
  return std::make_exception_ptr(std::runtime_error("Connection closed by peer [127.0.0.1]:4711"));
}

// Its abort() blocks until end() is called, like an ncclCommAbort() that hangs in a driver.
class HangingBackend final : public c10d::Backend {
 public:
  HangingBackend() : Backend(0, 2) {}
  void abort() override { end_.get_future().wait(); }
  void end() { end_.set_value(); }

 private:
  std::promise<void> end_;
};

// A worker whose first group is of generation 3.
class RecoveryTest : public testing::Test {
 protected:
  RecoveryTest() { recovery_.attach(channel_); }
  void in_first_group() { recovery_.begin_group(-1); }
  std::future<channel::Regroup> begins(std::int64_t step) {
    return std::async(std::launch::async, [this, step] { return recovery_.begin_group(step); });
  }

  FakeAgent agent_;
  Recovery recovery_{3, 4};
  AgentChannel channel_{agent_.connect(), {}, nullptr};
};

TEST_F(RecoveryTest, TheFirstGroupIsThatOfTheProcessAndNeedsNoWord) {
  const channel::Regroup first = recovery_.begin_group(-1);
  EXPECT_EQ(first.generation, 3);
  EXPECT_EQ(first.rank, -1);  // its rank comes from its environment
  recovery_.on_message(channel::Regroup{.generation = 4});
  EXPECT_EQ(recovery_.begin_group(7).generation, 4);
  const auto said = agent_.heard<channel::RegroupReady>();
  EXPECT_EQ(said.generation, 4) << "of the first group nothing is said";
  EXPECT_EQ(said.step, 7);
}

TEST_F(RecoveryTest, AHoldBreaksTheGroupAndIsOutlived) {
  in_first_group();
  EXPECT_FALSE(recovery_.breaker().broken());
  recovery_.on_message(channel::Hold{});
  EXPECT_TRUE(recovery_.breaker().broken());
  EXPECT_TRUE(recovery_.survives(lost_peer()));
  EXPECT_TRUE(recovery_.survives(std::make_exception_ptr(std::runtime_error("anything"))));
}

TEST_F(RecoveryTest, OrdersAreReadWhileTheAbortOfTheOldGroupHangs) {
  in_first_group();
  const auto backend = c10::make_intrusive<HangingBackend>();
  recovery_.breaker().aborts(backend);
  recovery_.on_message(channel::Hold{});
  auto next = begins(40);
  EXPECT_EQ(next.wait_for(50ms), std::future_status::timeout);
  auto order = std::async(std::launch::async, [this] { recovery_.on_message(place(5, 1, 2)); });
  EXPECT_EQ(order.wait_for(10s), std::future_status::ready) << "the reader of the channel waits for the abort";
  backend->end();
  EXPECT_EQ(next.get().generation, 5);
}

TEST_F(RecoveryTest, WhoIsHeldWaitsForItsPlace) {
  in_first_group();
  recovery_.on_message(channel::Hold{});
  auto next = begins(40);
  EXPECT_EQ(next.wait_for(50ms), std::future_status::timeout);
  recovery_.on_message(place(5, 1, 2));
  const channel::Regroup order = next.get();
  EXPECT_EQ(order.generation, 5);
  EXPECT_EQ(order.rank, 1);
  EXPECT_EQ(order.world_size, 2);
  EXPECT_EQ(order.group_rank, 1);
  EXPECT_FALSE(recovery_.breaker().broken());
  EXPECT_EQ(agent_.heard<channel::RegroupReady>().step, 40);
}

TEST_F(RecoveryTest, ASecondHoldBeforeTheGroupIsMadeIsWaitedForAsWell) {
  in_first_group();
  recovery_.on_message(channel::Hold{});
  recovery_.on_message(place(5, 1, 2));
  recovery_.on_message(channel::Hold{});
  auto next = begins(40);
  EXPECT_EQ(next.wait_for(50ms), std::future_status::timeout);
  recovery_.on_message(place(6, 0, 1));
  EXPECT_EQ(next.get().generation, 6);
}

TEST_F(RecoveryTest, AnOlderOrderIsNone) {
  in_first_group();
  recovery_.on_message(place(5, 1, 2));
  recovery_.on_message(place(4, 0, 3));
  EXPECT_EQ(recovery_.begin_group(1).generation, 5);
  EXPECT_FALSE(recovery_.breaker().broken());
  recovery_.on_message(place(5, 1, 2));  // the same order again
  EXPECT_FALSE(recovery_.breaker().broken());
}

TEST_F(RecoveryTest, WhoIsHeldDoesNotOutliveItsAgent) {
  in_first_group();
  recovery_.on_message(channel::Hold{});
  auto next = begins(40);
  recovery_.on_agent_gone();
  EXPECT_THROW(next.get(), std::runtime_error);
  EXPECT_FALSE(recovery_.survives(lost_peer()));
}

TEST_F(RecoveryTest, ItsOwnErrorsEndItWhateverIsOrdered) {
  in_first_group();
  recovery_.on_message(channel::Hold{});
  EXPECT_FALSE(recovery_.survives(std::make_exception_ptr(DivergedError("the loss is NaN"))));
}

// A retry would prepare the same model, fail with the same error, and use a CPU forever.
TEST_F(RecoveryTest, AnErrorBeforeTheFirstGroupEndsTheWorker) {
  const auto error = std::make_exception_ptr(std::runtime_error("weights.bin is not there"));
  EXPECT_FALSE(recovery_.survives(error));
  EXPECT_FALSE(recovery_.survives(lost_peer())) << "it has no peer yet";
  recovery_.on_message(channel::Regroup{.generation = 3});
  EXPECT_FALSE(recovery_.breaker().broken()) << "the group that it was started for";
  recovery_.on_message(channel::Regroup{.generation = 4});
  EXPECT_FALSE(recovery_.survives(error)) << "whatever is ordered";
  EXPECT_EQ(recovery_.begin_group(-1).generation, 4);
}

TEST_F(RecoveryTest, AnErrorOfItsDataEndsItWhateverIsOrdered) {
  in_first_group();
  recovery_.on_message(channel::Hold{});
  EXPECT_FALSE(recovery_.survives(std::make_exception_ptr(SourceError("Connection refused", false))));
}

TEST_F(RecoveryTest, ALostPeerIsWaitedForWithTheOrder) {
  in_first_group();
  auto survives = std::async(std::launch::async, [this] { return recovery_.survives(lost_peer()); });
  recovery_.on_message(channel::Hold{});
  EXPECT_TRUE(survives.get());
}

}  // namespace
}  // namespace ddprun::trainer
