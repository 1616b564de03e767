// Tests that a FileQueue executes its work in order on another thread, and that its owner does not wait for slow work.
#include "common/system/file_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <vector>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

class FileQueueTest : public testing::Test {
 protected:
  // Runs the posted callbacks in this thread, like the event loop of the owner.
  void run_callbacks() {
    std::vector<FileQueue::Work> all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(posted_);
    }
    for (const auto& each : all) each();
  }

  std::mutex mutex_;
  std::vector<FileQueue::Work> posted_;
  FileQueue::Post post_ = [this](FileQueue::Work then) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(then));
  };
};

TEST_F(FileQueueTest, RunsWorkInOrderOnOneThread) {
  FileQueue queue(post_);
  std::vector<int> done;
  std::vector<int> reported;
  std::thread::id on;
  for (int i = 0; i < 100; ++i) {
    queue.add([&, i] { done.push_back(i), on = std::this_thread::get_id(); }, [&, i] { reported.push_back(i); });
  }
  queue.finish();
  run_callbacks();
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(reported, done);
  EXPECT_NE(on, std::this_thread::get_id());
}

TEST_F(FileQueueTest, QueriesDuringAStallBlockOnce) {
  std::promise<void> thaw;
  FileQueue queue(post_);
  queue.add([] {});
  queue.finish();
  queue.add([until = thaw.get_future().share()] { until.wait(); });
  EXPECT_EQ(queue.query([] { return 7; }), std::nullopt);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(queue.wait_for(milliseconds(600000)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(600000));
  thaw.set_value();
  queue.finish();
  int answer = 0;
  queue.add([&] { answer = 8; });
  EXPECT_TRUE(queue.wait_for(milliseconds(60000)));  // by now the stalled work item has been executed
  EXPECT_EQ(answer, 8);
}

// The owner limits the number of pending work items. If a failed item were not reported as done, the owner would wait for it
// without a limit.
TEST_F(FileQueueTest, FailedWorkIsReportedAndTheNextRuns) {
  FileQueue queue(post_);
  int reported = 0;
  bool done = false;
  queue.add([] { throw std::bad_alloc(); }, [&] { ++reported; });
  queue.add([&] { done = true; }, [&] { ++reported; });
  queue.finish();
  run_callbacks();
  EXPECT_EQ(reported, 2);
  EXPECT_TRUE(done);
}

TEST_F(FileQueueTest, DestructorFinishesQueuedWork) {
  std::atomic<int> done = 0;
  {
    FileQueue queue(post_);
    for (int i = 0; i < 20; ++i) queue.add([&] { ++done; });
  }
  EXPECT_EQ(done, 20);
}

TEST_F(FileQueueTest, RunsInlineUntilStartAsync) {
  FileQueue queue(post_, FileQueue::Mode::kInline);
  std::vector<std::thread::id> on;
  bool reported = false;
  const auto note = [&] { on.push_back(std::this_thread::get_id()); };
  queue.add(note, [&] { reported = true; });
  EXPECT_EQ(on.size(), 1u);
  run_callbacks();
  EXPECT_TRUE(reported);
  queue.start_async();
  queue.add(note);
  queue.finish();
  ASSERT_EQ(on.size(), 2u);
  EXPECT_EQ(on.front(), std::this_thread::get_id());
  EXPECT_NE(on.back(), std::this_thread::get_id());
}

TEST_F(FileQueueTest, StartsNoThreadWithoutWork) {
  FileQueue queue(post_);
  EXPECT_TRUE(queue.wait_for(milliseconds(0)));
  queue.finish();
}

}  // namespace
}  // namespace ddprun
