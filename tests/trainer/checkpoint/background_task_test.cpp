// Tests BackgroundTask, which runs one task at a time on a separate thread and returns the result of each task.
#include "trainer/checkpoint/background_task.hpp"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

namespace ddprun::trainer {
namespace {

TEST(BackgroundTask, RunsInParallelWithTheCaller) {
  BackgroundTask task;
  EXPECT_FALSE(task.busy());
  EXPECT_FALSE(task.take_finished());
  task.wait();

  std::promise<void> may_end;
  std::thread::id worked_on;
  task.start([&, allowed = may_end.get_future().share()] {
    worked_on = std::this_thread::get_id();
    allowed.wait();
  });
  EXPECT_TRUE(task.busy());
  EXPECT_FALSE(task.take_finished());
  EXPECT_THROW(task.start([] {}), std::logic_error);
  may_end.set_value();
  task.wait();
  EXPECT_FALSE(task.busy());
  EXPECT_THROW(task.start([] {}), std::logic_error) << "the result of the first was not taken";
  const auto finished = task.take_finished();
  ASSERT_TRUE(finished);
  EXPECT_FALSE(*finished);
  EXPECT_FALSE(task.take_finished());
  EXPECT_NE(worked_on, std::this_thread::get_id());
}

TEST(BackgroundTask, PassesOnExceptionsAndAcceptsMoreWork) {
  BackgroundTask task;
  for (int i = 0; i < 100; ++i) {
    task.start([i] {
      if (i % 2 == 0) throw std::runtime_error(std::to_string(i));
    });
    task.wait();
    const auto finished = task.take_finished();
    ASSERT_TRUE(finished);
    if (i % 2 != 0) {
      EXPECT_FALSE(*finished);
      continue;
    }
    try {
      std::rethrow_exception(*finished);
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(i));
    }
  }
}

TEST(BackgroundTask, DestructorWaitsForTheWork) {
  bool done = false;
  {
    BackgroundTask task;
    task.start([&] { done = true; });
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace ddprun::trainer
