// Tests a worker that loses its process group. The worker keeps its state and waits until the agent assigns a rank to it. If
// the worker itself has failed, it exits. The test process simulates the agent.
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

// A backend whose abort() blocks until end() is called, like an ncclCommAbort() that hangs in a driver.
class HangingBackend final : public c10d::Backend {
 public:
  HangingBackend() : Backend(0, 2) {}
  void abort() override { end_.get_future().wait(); }
  void end() { end_.set_value(); }

 private:
  std::promise<void> end_;
};

// A worker whose first process group has generation (number) 3.
class RecoveryTest : public testing::Test {
 protected:
  RecoveryTest() { recovery_.attach(channel_); }
  void join_first_group() { recovery_.begin_group(-1); }
  std::future<channel::Regroup> begins(std::int64_t step) {
    return std::async(std::launch::async, [this, step] { return recovery_.begin_group(step); });
  }

  FakeAgent agent_;
  Recovery recovery_{3, 4};
  AgentChannel channel_{agent_.connect(), {}, nullptr};
};

TEST_F(RecoveryTest, TheFirstGroupNeedsNoOrder) {
  const channel::Regroup first = recovery_.begin_group(-1);
  EXPECT_EQ(first.generation, 3);
  EXPECT_EQ(first.rank, -1);  // for the first process group, the worker reads its rank from the environment
  recovery_.on_message(channel::Regroup{.generation = 4});
  EXPECT_EQ(recovery_.begin_group(7).generation, 4);
  const auto regroup_ready = agent_.wait_for_message<channel::RegroupReady>();
  EXPECT_EQ(regroup_ready.generation, 4) << "nothing is reported for the first group";
  EXPECT_EQ(regroup_ready.step, 7);
}

TEST_F(RecoveryTest, AHoldBreaksTheGroupAndTheWorkerSurvives) {
  join_first_group();
  EXPECT_FALSE(recovery_.breaker().broken());
  recovery_.on_message(channel::Hold{});
  EXPECT_TRUE(recovery_.breaker().broken());
  EXPECT_TRUE(recovery_.survives(lost_peer()));
  EXPECT_TRUE(recovery_.survives(std::make_exception_ptr(std::runtime_error("anything"))));
}

TEST_F(RecoveryTest, MessagesAreReadWhileAnAbortHangs) {
  join_first_group();
  const auto backend = c10::make_intrusive<HangingBackend>();
  recovery_.breaker().set_backend(backend);
  recovery_.on_message(channel::Hold{});
  auto next = begins(40);
  EXPECT_EQ(next.wait_for(50ms), std::future_status::timeout);
  auto order = std::async(std::launch::async, [this] { recovery_.on_message(place(5, 1, 2)); });
  EXPECT_EQ(order.wait_for(10s), std::future_status::ready) << "the reader of the channel waits for the abort";
  EXPECT_EQ(next.wait_for(50ms), std::future_status::timeout) << "the next group is made before the old one is gone";
  backend->end();
  EXPECT_EQ(next.get().generation, 5);
}

TEST_F(RecoveryTest, AHeldWorkerWaitsForItsAssignment) {
  join_first_group();
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
  EXPECT_EQ(agent_.wait_for_message<channel::RegroupReady>().step, 40);
}

TEST_F(RecoveryTest, ASecondHoldIsWaitedForToo) {
  join_first_group();
  recovery_.on_message(channel::Hold{});
  recovery_.on_message(place(5, 1, 2));
  recovery_.on_message(channel::Hold{});
  auto next = begins(40);
  EXPECT_EQ(next.wait_for(50ms), std::future_status::timeout);
  recovery_.on_message(place(6, 0, 1));
  EXPECT_EQ(next.get().generation, 6);
}

TEST_F(RecoveryTest, AnOlderOrderIsIgnored) {
  join_first_group();
  recovery_.on_message(place(5, 1, 2));
  recovery_.on_message(place(4, 0, 3));
  EXPECT_EQ(recovery_.begin_group(1).generation, 5);
  EXPECT_FALSE(recovery_.breaker().broken());
  recovery_.on_message(place(5, 1, 2));  // the newest Regroup message arrives a second time
  EXPECT_FALSE(recovery_.breaker().broken());
}

TEST_F(RecoveryTest, AHeldWorkerEndsWithItsAgent) {
  join_first_group();
  recovery_.on_message(channel::Hold{});
  auto next = begins(40);
  recovery_.on_agent_gone();
  EXPECT_THROW(next.get(), std::runtime_error);
  EXPECT_FALSE(recovery_.survives(lost_peer()));
}

TEST_F(RecoveryTest, ItsOwnErrorsEndItDespiteOrders) {
  join_first_group();
  recovery_.on_message(channel::Hold{});
  EXPECT_FALSE(recovery_.survives(std::make_exception_ptr(DivergedError("the loss is NaN"))));
}

// A worker that fails before its first process group must not try again. It would fail with the same error each time, and
// would use a CPU without end.
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

TEST_F(RecoveryTest, ADataErrorEndsItDespiteOrders) {
  join_first_group();
  recovery_.on_message(channel::Hold{});
  EXPECT_FALSE(recovery_.survives(std::make_exception_ptr(SourceError("Connection refused", false))));
}

TEST_F(RecoveryTest, ALostPeerWaitsForTheOrder) {
  join_first_group();
  auto survives = std::async(std::launch::async, [this] { return recovery_.survives(lost_peer()); });
  recovery_.on_message(channel::Hold{});
  EXPECT_TRUE(survives.get());
}

}  // namespace
}  // namespace ddprun::trainer
