// Tests that all ranks stop at the same step, no matter which rank is ahead when the stop is requested.
#include "trainer/surroundings/stop_gate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <future>
#include <thread>
#include <vector>

namespace ddprun::trainer {
namespace {

using Verdict = StopGate::Verdict;

TEST(StopGate, PassesEveryStepWithoutARequest) {
  StopGate gate;
  for (std::int64_t finished = 0; finished < 100; ++finished) EXPECT_EQ(gate.may_start(finished), Verdict::kGo);
  EXPECT_FALSE(gate.stop_requested());
}

TEST(StopGate, ReturnsTheNumberOfStartedSteps) {
  StopGate gate;
  EXPECT_EQ(gate.may_start(400), Verdict::kGo);  // the first step after a resume at step 400
  EXPECT_EQ(gate.request_stop(), 401);
}

TEST(StopGate, StopsBeforeTheFirstStep) {
  StopGate gate;
  EXPECT_EQ(gate.request_stop(), 0);
  gate.stop_at(0);
  EXPECT_EQ(gate.may_start(400), Verdict::kStop);
}

TEST(StopGate, ARankBehindCatchesUp) {
  StopGate gate;
  EXPECT_EQ(gate.may_start(4), Verdict::kGo);
  EXPECT_EQ(gate.request_stop(), 5);
  gate.stop_at(6);  // another rank has already started step 6
  EXPECT_EQ(gate.may_start(5), Verdict::kGo);
  EXPECT_EQ(gate.may_start(6), Verdict::kStop);
}

TEST(StopGate, WaitsForTheTargetBeforeStartingAnotherStep) {
  StopGate gate;
  gate.request_stop();
  auto verdict = std::async(std::launch::async, [&] { return gate.may_start(7); });
  gate.stop_at(7);
  EXPECT_EQ(verdict.get(), Verdict::kStop);
}

// Each rank is a thread. The threads wait for each other after every step, as in an all-reduce. Another thread requests the
// stop from each rank at an arbitrary time.
TEST(StopGate, AllRanksStopAtTheSameStep) {
  constexpr int kAll = 4;
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::vector<StopGate> gates(kAll);
    std::vector<std::int64_t> finished(kAll, 0);
    std::vector<std::thread> threads;
    std::barrier all_reduce(kAll);
    for (int rank = 0; rank < kAll; ++rank) {
      threads.emplace_back([&, rank] {
        std::int64_t& own = finished[static_cast<std::size_t>(rank)];
        while (gates[static_cast<std::size_t>(rank)].may_start(own) == Verdict::kGo) {
          all_reduce.arrive_and_wait();
          ++own;
        }
      });
    }
    std::vector<std::future<std::int64_t>> answers;
    for (StopGate& gate : gates) answers.push_back(std::async(std::launch::async, [&gate] { return gate.request_stop(); }));
    std::int64_t target = 0;
    for (auto& answer : answers) target = std::max(target, answer.get());
    for (StopGate& gate : gates) gate.stop_at(target);
    for (std::thread& thread : threads) thread.join();
    for (const std::int64_t steps : finished) EXPECT_EQ(steps, target);
  }
}

}  // namespace
}  // namespace ddprun::trainer
