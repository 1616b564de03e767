// The rounds of report.json: how many are kept, how much of each, and their text. If a job fails ten thousand times, its first
// and last rounds are kept. If hundreds of workers fail, the first cause and a few consequences are kept in full, and the
// others by rank. So the report stays below some megabytes, and only what has changed is formatted again. report.cpp has one of
// these.
//
// This class owns the text of each round that has not changed since it was formatted.
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
  static constexpr std::size_t kLastInFull = 8;    // after the first kFirst rounds, only these keep evidence of consequences
  static constexpr std::size_t kConsequences = 8;  // of one round, in full
  static constexpr std::size_t kRanksNamed = 64;   // for each cause of the other consequences

  // A round was appended. True: a round in the middle was removed for it.
  bool appended(ReportJson& rounds);
  // That round, which is not the last one, has changed.
  void changed(std::size_t round);
  // The whole document with these "rounds", as dump(2) would give it. The last round may have changed.
  std::string text_of(const ReportJson& document);

  // How many rounds were formatted until now: tests measure the work by it.
  std::int64_t worded() const { return worded_; }

 private:
  std::vector<std::string> texts_;  // empty: to be formatted
  std::int64_t worded_ = 0;
};

void add_consequences(ReportJson& round, const std::vector<Failure>& consequences);

}  // namespace ddprun
