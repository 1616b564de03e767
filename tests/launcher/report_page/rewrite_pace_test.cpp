// Tests how often `ddprun report --follow` writes its page again.
#include <gtest/gtest.h>

#include "launcher/report_page/rewrite_pace.hpp"

namespace ddprun {
namespace {

using namespace std::chrono_literals;

constexpr RewritePace::Clock::time_point kWritten{100s};

RewritePace written_pace() {
  RewritePace pace;
  pace.written(kWritten);
  return pace;
}

TEST(RewritePace, WithoutAChangeTheMaximumIntervalApplies) {
  const RewritePace pace = written_pace();
  EXPECT_FALSE(pace.has_changed());
  EXPECT_EQ(pace.remaining(kWritten), 5s);
  EXPECT_EQ(pace.remaining(kWritten + 4s), 1s);
  EXPECT_EQ(pace.remaining(kWritten + 6s), 0s);
}

TEST(RewritePace, AChangeIsDelayedToTheMinimumInterval) {
  RewritePace pace = written_pace();
  pace.changed();
  EXPECT_TRUE(pace.has_changed());
  EXPECT_EQ(pace.remaining(kWritten + 500ms), 1500ms);
  EXPECT_EQ(pace.remaining(kWritten + 3s), 0s);
}

TEST(RewritePace, ARewriteIncludesAllChanges) {
  RewritePace pace = written_pace();
  pace.changed();
  pace.written(kWritten + 2s);
  EXPECT_FALSE(pace.has_changed());
  EXPECT_EQ(pace.remaining(kWritten + 2s), 5s);
}

TEST(RewritePace, ARestOfAMillisecondIsNotZero) {
  RewritePace pace = written_pace();
  pace.changed();
  EXPECT_EQ(pace.remaining(kWritten + 2s - 1ns), 1ms);  // not 0, because with 0 the caller would poll without waiting
}

}  // namespace
}  // namespace ddprun
