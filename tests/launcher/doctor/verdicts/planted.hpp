// Defines table rows for the tests of verdicts. Each row has the checks of a machine that has one planted defect, and the
// expected finding. A finding is a check that is not ok. The checks of a healthy machine contain no finding.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/doctor/verdicts/check.hpp"
#include "launcher/doctor/verdicts/job_needs.hpp"

namespace ddprun::doctor::test {

using Work = JobNeeds::Work;
using Gpus = JobNeeds::Gpus;
inline constexpr auto kWarning = CheckVerdict::kWarning;
inline constexpr auto kError = CheckVerdict::kError;
inline const JobNeeds kNoJob;
inline const JobNeeds kScript{.work = JobNeeds::Work::kPython, .workers = 2};

struct Planted {
  std::string defect;
  Checks checks;  // the checks of a machine with this defect
  CheckVerdict verdict;
  std::string check;
  std::string found;   // a substring of the finding's text
  std::string remedy;  // a substring of the remedy's text
};

// Expects exactly one finding for each row: the planted defect.
inline void expect_found(const std::vector<Planted>& table) {
  for (const Planted& one : table) {
    Checks findings;
    std::ranges::copy_if(one.checks, std::back_inserter(findings),
                         [](const Check& c) { return c.verdict != CheckVerdict::kOk; });
    ASSERT_EQ(findings.size(), 1u) << one.defect << "\n" << table_of(one.checks);
    EXPECT_EQ(findings[0].verdict, one.verdict) << one.defect;
    EXPECT_EQ(findings[0].check, one.check) << one.defect;
    EXPECT_NE(findings[0].found.find(one.found), std::string::npos) << one.defect << ": " << findings[0].found;
    EXPECT_NE(findings[0].remedy.find(one.remedy), std::string::npos) << one.defect << ": " << findings[0].remedy;
    EXPECT_FALSE(findings[0].remedy.empty()) << one.defect;
  }
}

inline void expect_healthy(const std::string& machine, const Checks& checks) {
  for (const Check& check : checks) {
    EXPECT_EQ(check.verdict, CheckVerdict::kOk) << machine << ": " << check.check << ": " << check.found;
    EXPECT_EQ(check.remedy, "") << machine;
    EXPECT_NE(check.found, "") << machine << ": " << check.check;
  }
}

// Returns the facts about a healthy machine, after one change.
template <class Facts, class Change>
Facts with(Facts facts, Change change) {
  change(facts);
  return facts;
}

}  // namespace ddprun::doctor::test
