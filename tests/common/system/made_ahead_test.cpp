// What threads make ahead comes in order and bounded, with what was thrown in its place, however long any of them takes.
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

// Counted where one begins, and where its user has it.
TEST_P(MadeAheadTest, NoMoreExistThanMayWaitAndAreInHand) {
  constexpr std::int64_t kAhead = 3;
  std::atomic<std::int64_t> begun{0}, taken{0}, most{0};
  MadeAhead<int> ahead({.end = 500, .threads = GetParam(), .ahead = kAhead, .thread_name = "maker"}, [&](std::int64_t) {
    const std::int64_t own = ++begun;  // first: what is taken meanwhile makes the difference smaller
    const std::int64_t now = own - taken;
    for (std::int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) continue;
    return 0;
  });
  for (int i = 0; i < 500; ++i) {
    if (i % 50 == 0) {
      // What can be begun is begun, and no more; next() of the one before may not have been counted yet.
      while (begun - taken < std::min<std::int64_t>(kAhead / 2 + 1, 500 - i)) std::this_thread::yield();
    }
    ahead.next();
    ++taken;
  }
  EXPECT_LE(most, kAhead + GetParam() + 1);
  EXPECT_GE(most, kAhead / 2 + 1);
}

// All have one in hand at once: the first is finished last, and comes first.
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

// Number 6 fails while number 5 is still being made: 5 comes, then 6 fails as what it is.
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
