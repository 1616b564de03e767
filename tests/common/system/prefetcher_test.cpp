// Tests the threads that create items in advance. Items are returned in order, and their number is bounded. If an item fails,
// next() throws its exception when it is the turn of this item. No test depends on how long an item takes.
#include "common/system/prefetcher.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

class PrefetcherTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, PrefetcherTest, testing::Values(1, 2, 7));

TEST_P(PrefetcherTest, ReturnsEachItemOnceAndInOrder) {
  constexpr std::int64_t kFirst = 3, kEnd = 2003;
  std::mutex mutex;
  std::multiset<std::int64_t> made;
  Prefetcher<std::unique_ptr<std::int64_t>> ahead(
      {.first = kFirst, .end = kEnd, .threads = GetParam(), .ahead = 4, .thread_name = "maker"}, [&](std::int64_t number) {
        if (number % 5 == 0) std::this_thread::yield();
        const std::lock_guard lock(mutex);
        made.insert(number);
        return std::make_unique<std::int64_t>(number);
      });
  for (std::int64_t number = kFirst; number < kEnd; ++number) ASSERT_EQ(*ahead.next(), number);
  EXPECT_THROW(ahead.next(), std::logic_error);
  EXPECT_EQ(made.size(), static_cast<std::size_t>(kEnd - kFirst));
}

// An item is in progress from the time when a thread starts it until next() has returned it.
TEST_P(PrefetcherTest, NumberOfItemsIsBounded) {
  constexpr std::int64_t kAhead = 3;
  std::atomic<std::int64_t> started{0}, taken{0}, most{0};
  Prefetcher<int> ahead({.end = 500, .threads = GetParam(), .ahead = kAhead, .thread_name = "maker"}, [&](std::int64_t) {
    // `started` is read before `taken`. If next() returns an item in between, the difference only becomes smaller.
    const std::int64_t number_started = ++started;
    const std::int64_t now = number_started - taken;
    for (std::int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) continue;
    return 0;
  });
  for (int i = 0; i < 500; ++i) {
    if (i % 50 == 0) {
      // Waits until the threads have started all items that they may start now. One item less is enough, because the last call
      // to next() may still be in progress.
      while (started - taken < std::min<std::int64_t>(kAhead / 2 + 1, 500 - i)) std::this_thread::yield();
    }
    ahead.next();
    ++taken;
  }
  EXPECT_LE(most, kAhead + GetParam() + 1);
  EXPECT_GE(most, kAhead / 2 + 1);
}

// Each of the threads has one item in progress. The first item is finished last, but is returned first.
TEST(Prefetcher, ThreadsWorkInParallel) {
  constexpr int kThreads = 4;
  std::latch all_there(kThreads), others_done(kThreads - 1);
  Prefetcher<std::int64_t> ahead({.end = kThreads, .threads = kThreads, .ahead = 1, .thread_name = "maker"},
                                 [&](std::int64_t number) {
                                   all_there.arrive_and_wait();
                                   if (number == 0) {
                                     others_done.wait();
                                   } else {
                                     others_done.count_down();
                                   }
                                   return number;
                                 });
  for (std::int64_t number = 0; number < kThreads; ++number) EXPECT_EQ(ahead.next(), number);
}

// Item 6 fails while item 5 is still in progress. Item 5 is returned first, and then the exception of item 6 is thrown.
TEST(Prefetcher, ExceptionIsThrownInPlaceOfItsItem) {
  std::latch failed(1);
  Prefetcher<std::int64_t> ahead({.end = 1'000'000, .threads = 3, .ahead = 8, .thread_name = "maker"},
                                 [&](std::int64_t number) {
                                   if (number == 5) failed.wait();
                                   if (number == 6) {
                                     failed.count_down();
                                     throw UsageError("sample 17 is damaged");
                                   }
                                   return number;
                                 });
  for (std::int64_t number = 0; number < 6; ++number) EXPECT_EQ(ahead.next(), number);
  for (int time = 0; time < 2; ++time) {
    try {
      ahead.next();
      FAIL() << "number 6 came";
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "sample 17 is damaged");
    }
  }
}

TEST_P(PrefetcherTest, DestructorStopsBusyThreads) {
  for (int taken = 0; taken < 20; ++taken) {
    Prefetcher<int> ahead({.end = 1'000'000'000, .threads = GetParam(), .ahead = 1 + taken % 4, .thread_name = "maker"},
                          [](std::int64_t) { return 0; });
    for (int i = 0; i < taken; ++i) ahead.next();
  }
}

}  // namespace
}  // namespace ddprun
