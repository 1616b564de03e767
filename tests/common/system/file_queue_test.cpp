// The queue works in order and on another thread, and its owner does not wait for slow work.
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
  // Runs the posted callbacks, as an owner's loop would.
  void hear() {
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

TEST_F(FileQueueTest, WorkIsDoneInOrderOnOneOtherThread) {
  FileQueue queue(post_);
  std::vector<int> done;
  std::vector<int> heard;
  std::thread::id on;
  for (int i = 0; i < 100; ++i) {
    queue.add([&, i] { done.push_back(i), on = std::this_thread::get_id(); }, [&, i] { heard.push_back(i); });
  }
  queue.finish();
  hear();
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(heard, done);
  EXPECT_NE(on, std::this_thread::get_id());
}

TEST_F(FileQueueTest, WhoAsksWhileItStallsWaitsOnce) {
  std::promise<void> thaw;
  FileQueue queue(post_);
  queue.add([] {});
  queue.finish();
  queue.add([until = thaw.get_future().share()] { until.wait(); });
  EXPECT_EQ(queue.ask([] { return 7; }), std::nullopt);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(queue.is_done_within(milliseconds(600000)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(600000));
  thaw.set_value();
  queue.finish();
  int answer = 0;
  queue.add([&] { answer = 8; });
  EXPECT_TRUE(queue.is_done_within(milliseconds(60000)));  // the late work is done now
  EXPECT_EQ(answer, 8);
}

// An owner that limits the waiting work would wait forever for a failed piece that is not reported.
TEST_F(FileQueueTest, WorkThatFailsIsToldOfAndTheNextIsDone) {
  FileQueue queue(post_);
  int heard = 0;
  bool done = false;
  queue.add([] { throw std::bad_alloc(); }, [&] { ++heard; });
  queue.add([&] { done = true; }, [&] { ++heard; });
  queue.finish();
  hear();
  EXPECT_EQ(heard, 2);
  EXPECT_TRUE(done);
}

TEST_F(FileQueueTest, ItsEndDoesWhatIsLeft) {
  std::atomic<int> done = 0;
  {
    FileQueue queue(post_);
    for (int i = 0; i < 20; ++i) queue.add([&] { ++done; });
  }
  EXPECT_EQ(done, 20);
}

TEST_F(FileQueueTest, WorkIsDoneAtOnceUntilSomebodyCouldBeKeptWaiting) {
  FileQueue queue(post_, FileQueue::Begins::kAtOnce);
  std::vector<std::thread::id> on;
  bool heard = false;
  const auto note = [&] { on.push_back(std::this_thread::get_id()); };
  queue.add(note, [&] { heard = true; });
  EXPECT_EQ(on.size(), 1u);
  hear();
  EXPECT_TRUE(heard);
  queue.go_behind();
  queue.add(note);
  queue.finish();
  ASSERT_EQ(on.size(), 2u);
  EXPECT_EQ(on.front(), std::this_thread::get_id());
  EXPECT_NE(on.back(), std::this_thread::get_id());
}

TEST_F(FileQueueTest, WithoutWorkThereIsNoThread) {
  FileQueue queue(post_);
  EXPECT_TRUE(queue.is_done_within(milliseconds(0)));
  queue.finish();
}

}  // namespace
}  // namespace ddprun
