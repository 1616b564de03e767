// Tests that the number of rounds in a report is limited, and that each round is formatted only a few times.
#include "launcher/report/report_rounds.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/events/event_json.hpp"

namespace ddprun {
namespace {

Failure with_last_lines(int rank, std::size_t bytes) {
  Failure failure;
  failure.rank = rank;
  failure.cause = rank == 0 ? Cause::kSignal : Cause::kLostPeer;
  failure.stderr_tail = {std::string(bytes, 'x'), std::string("not UTF-8: \xff")};
  return failure;
}

ReportJson failed_round(int number, int workers, std::size_t bytes) {
  ReportJson round{
      {"round", number}, {"first_cause", failure_json(with_last_lines(0, bytes))}, {"consequences", ReportJson::array()}};
  std::vector<Failure> consequences;
  for (int rank = 1; rank < workers; ++rank) consequences.push_back(with_last_lines(rank, bytes));
  add_consequences(round, consequences);
  return round;
}

ReportJson empty_report() {
  return ReportJson{{"version", 1}, {"rounds", ReportJson::array()}, {"exit", nullptr}};
}

std::string dumped(const ReportJson& report) {
  return report.dump(2, ' ', false, ReportJson::error_handler_t::replace) + "\n";
}

TEST(ReportRounds, EightConsequencesAreKeptInFull) {
  const ReportJson round = failed_round(0, 200, 100);
  ASSERT_EQ(round["consequences"].size(), 8u);
  EXPECT_TRUE(round["consequences"][7].contains("stderr_tail"));
  const ReportJson& others = round["other_consequences"];
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0]["cause"], "lost_peer");
  EXPECT_EQ(others[0]["count"], 191);
  EXPECT_EQ(others[0]["ranks"].size(), 64u);
  EXPECT_EQ(others[0]["ranks"][0], 9);
  EXPECT_FALSE(failed_round(0, 9, 100).contains("other_consequences"));
}

TEST(ReportRounds, TextEqualsTheDumpedDocument) {
  ReportRounds rounds;
  ReportJson report = empty_report();
  EXPECT_EQ(rounds.text_of(report), dumped(report));
  for (int number = 0; number < 130; ++number) {
    report["rounds"].push_back(failed_round(number, 3, 20));
    rounds.appended(report["rounds"]);
    EXPECT_EQ(rounds.text_of(report), dumped(report));
    report["rounds"].back()["decision"] = "restart";
    EXPECT_EQ(rounds.text_of(report), dumped(report));
    if (number > 0) {
      const std::size_t before = report["rounds"].size() - 2;
      report["rounds"][before]["steps_lost"] = number;
      rounds.changed(before);
    }
    EXPECT_EQ(rounds.text_of(report), dumped(report));
  }
}

TEST(ReportRounds, ARoundIsFormattedOnlyWhenItChanges) {
  ReportRounds rounds;
  ReportJson report = empty_report();
  for (int number = 0; number < 300; ++number) {
    report["rounds"].push_back(failed_round(number, 3, 20));
    rounds.appended(report["rounds"]);
    (void)rounds.text_of(report);
  }
  EXPECT_LE(rounds.formatted_rounds(),
            // each round is formatted three times: as the last round, as an earlier round, and after its stderr lines are
            // removed
            3 * 300);
}

// Ten thousand rounds fail. In each round, each of 16 workers has 20 KiB of last stderr lines, which is the maximum.
TEST(ReportRounds, TenThousandFailuresNeedAtMostEightMebibytes) {
  ReportRounds rounds;
  ReportJson report = empty_report();
  const ReportJson round = failed_round(0, 16, 20 << 10);
  std::size_t left_out = 0;
  std::size_t largest = 0;
  for (int number = 0; number < 10000; ++number) {
    report["rounds"].push_back(round);
    left_out += rounds.appended(report["rounds"]) ? 1 : 0;
    if (number % 500 == 0) largest = std::max(largest, rounds.text_of(report).size());
  }
  EXPECT_EQ(left_out, 9900u);
  EXPECT_LT(largest, std::size_t{8} << 20);
  std::cout << "the report: " << largest << " bytes\n";
}

}  // namespace
}  // namespace ddprun
