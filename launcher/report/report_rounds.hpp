// The rounds of report.json: how many are kept, how much of each, and their text. Of a job that fails ten thousand times the
// first rounds and the last are kept; of a failure of hundreds of workers the first cause and a few consequences are, the
// others are named. So the report stays below some megabytes, and putting it into text costs what changed and not what is
// there. report.cpp has one of these.
//
// It owns the text of each round that has not changed since it was put into words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/events/run_event.hpp"
#include "launcher/report/report_figures.hpp"

namespace ddprun {

class ReportRounds {
 public:
  static constexpr std::size_t kFirst = 20, kLast = 80;  // rounds that are kept
  static constexpr std::size_t kLastInFull = 8;          // later ones than kFirst keep no evidence of consequences
  static constexpr std::size_t kConsequences = 8;        // of a round
  static constexpr std::size_t kRanksNamed = 64;         // of each cause of the other consequences

  // A round was appended. True: one in the middle is left out for it.
  bool appended(ReportJson& rounds);
  // That round is not the last one, and says something else now.
  void changed(std::size_t round);
  // The whole document, whose "rounds" these are, as dump(2) gives it. The last round may have changed.
  std::string text_of(const ReportJson& document);

  // Rounds put into words since it was made: what the work is measured by.
  std::int64_t worded() const { return worded_; }

 private:
  std::vector<std::string> texts_;  // empty: to be put into words
  std::int64_t worded_ = 0;
};

void add_consequences(ReportJson& round, const std::vector<Failure>& consequences);

}  // namespace ddprun
