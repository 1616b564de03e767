// Tests Slurm's notation of durations, and the check that a time limit is long enough for a save at its end.
#include "launcher/submit/slurm/slurm_time.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using std::chrono::seconds;

TEST(SlurmTime, ParsesTheFormsOfSbatch) {
  const std::vector<std::pair<const char*, std::int64_t>> forms{{"90", 5400},     {"1:30", 90},      {"12:00:00", 43'200},
                                                                {"2-0", 172'800}, {"1-2:3", 93'780}, {"1-02:03:04", 93'784},
                                                                {"00:00:13", 13}, {"0", 0}};
  for (const auto& [text, expected] : forms) EXPECT_EQ(parse_slurm_time(text), seconds(expected)) << text;
  EXPECT_EQ(parse_slurm_time("UNLIMITED"), kNoTimeLimit);
}

TEST(SlurmTime, RefusesOtherText) {
  for (const char* text :
       {"", ":", "1:", "-1", "1-", "-", "1:2:3:4", "1-2-3", "1h", "+5", " 5", "999999999999", "N/A", "1-1:2:3:4"})
    EXPECT_EQ(parse_slurm_time(text), std::nullopt) << text;
}

TEST(SlurmTime, TheDefaultLeavesAQuarterForTheEnd) {
  EXPECT_EQ(default_shutdown(seconds(120)), seconds(90));
  EXPECT_EQ(default_shutdown(seconds(10)), seconds(5));
}

TEST(SlurmTime, ALimitMustBeLongerThanASave) {
  SlurmTimes times{.limit = seconds(3600), .signal_before = seconds(120), .shutdown_s = 90, .save_s = 80};
  EXPECT_EQ(time_problem(times), "");
  times.limit = seconds(120);
  EXPECT_TRUE(time_problem(times).starts_with("the time limit is shorter than a save: --time is 120 s")) << time_problem(times);
  times.limit = kNoTimeLimit;
  EXPECT_EQ(time_problem(times), "");
  times.limit = std::nullopt;
  EXPECT_EQ(time_problem(times), "");
}

TEST(SlurmTime, AMeasuredSaveMustFit) {
  SlurmTimes times{.limit = seconds(3600), .signal_before = seconds(120), .shutdown_s = 90, .save_s = 90.5};
  EXPECT_NE(time_problem(times).find("took 91 s"), std::string::npos) << time_problem(times);
  EXPECT_NE(time_problem(times).find("--signal-before 126"), std::string::npos) << time_problem(times);
  times.save_s = 5000;
  EXPECT_TRUE(time_problem(times).starts_with("the time limit is shorter than a save")) << time_problem(times);
  times.save_s = std::nullopt;
  EXPECT_EQ(time_problem(times), "");
}

TEST(SlurmTime, TheAdvisedSignalIsLongEnough) {
  const double save_s = 90.5;
  EXPECT_GE(static_cast<double>(default_shutdown(seconds(126)).count()), save_s);
}

TEST(SlurmTime, AgentsMustEndBeforeTheLimit) {
  EXPECT_NE(time_problem({.signal_before = seconds(60), .shutdown_s = 60}).find("--shutdown-timeout"), std::string::npos);
}

TEST(SlurmTime, AnEarlySignalIsAWarning) {
  EXPECT_NE(time_warning({.limit = seconds(60), .signal_before = seconds(30)}).find("only 0 s"), std::string::npos);
  EXPECT_NE(time_warning({.limit = seconds(239), .signal_before = seconds(120)}).find("only 59 s"), std::string::npos);
  EXPECT_EQ(time_warning({.limit = seconds(240), .signal_before = seconds(120)}), "");
  EXPECT_EQ(time_warning({.limit = std::nullopt}), "");
}

}  // namespace
}  // namespace ddprun
