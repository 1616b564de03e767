// Items that threads make ahead come in order, with a bound on their number, and with an exception in place of a failed item.
// None of this depends on how long an item takes.
#include "common/system/made_ahead.hpp"

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

class MadeAheadTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, MadeAheadTest, testing::Values(1, 2, 7));

TEST_P(MadeAheadTest, ComesInOrderAndEachOnce) {
  constexpr std::int64_t kFirst = 3, kEnd = 2003;
  std::mutex mutex;
  std::multiset<std::int64_t> made;
  MadeAhead<std::unique_ptr<std::int64_t>> ahead(
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

// Counted when an item is started, and when its consumer has it.
TEST_P(MadeAheadTest, NoMoreExistThanMayWaitAndAreInHand) {
  constexpr std::int64_t kAhead = 3;
  std::atomic<std::int64_t> begun{0}, taken{0}, most{0};
  MadeAhead<int> ahead({.end = 500, .threads = GetParam(), .ahead = kAhead, .thread_name = "maker"}, [&](std::int64_t) {
    const std::int64_t own = ++begun;  // read first: items that are taken meanwhile only make the difference smaller
    const std::int64_t now = own - taken;
    for (std::int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) continue;
    return 0;
  });
  for (int i = 0; i < 500; ++i) {
    if (i % 50 == 0) {
      // All items that may be started are started, and no more. The last next() may not have been counted yet.
      while (begun - taken < std::min<std::int64_t>(kAhead / 2 + 1, 500 - i)) std::this_thread::yield();
    }
    ahead.next();
    ++taken;
  }
  EXPECT_LE(most, kAhead + GetParam() + 1);
  EXPECT_GE(most, kAhead / 2 + 1);
}

// All threads have one item in progress: the first item is finished last, but is returned first.
TEST(MadeAhead, ThreadsWorkSideBySide) {
  constexpr int kThreads = 4;
  std::latch all_there(kThreads), others_done(kThreads - 1);
  MadeAhead<std::int64_t> ahead({.end = kThreads, .threads = kThreads, .ahead = 1, .thread_name = "maker"},
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

// Number 6 fails while number 5 is still being made: 5 is returned, then 6 throws its own exception.
TEST(MadeAhead, AFailureComesWhenItsNumberIsDue) {
  std::latch failed(1);
  MadeAhead<std::int64_t> ahead({.end = 1'000'000, .threads = 3, .ahead = 8, .thread_name = "maker"}, [&](std::int64_t number) {
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

TEST_P(MadeAheadTest, EndsWhateverItsThreadsDo) {
  for (int taken = 0; taken < 20; ++taken) {
    MadeAhead<int> ahead({.end = 1'000'000'000, .threads = GetParam(), .ahead = 1 + taken % 4, .thread_name = "maker"},
                         [](std::int64_t) { return 0; });
    for (int i = 0; i < taken; ++i) ahead.next();
  }
}

}  // namespace
}  // namespace ddprun
