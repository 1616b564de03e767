// The rounds of report.json: which rounds are kept, how much of each, and their text. If a job fails ten thousand times, its
// first and last rounds are kept. If hundreds of workers fail, the first cause and a few consequences are kept in full, and the
// other consequences as rank numbers. So the report stays below a few megabytes, and only changed rounds are formatted again.
// report.cpp has one of these.
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
  static constexpr std::size_t kFirst = 20, kLast = 80;  // number of kept rounds at the beginning and at the end
  // Only this many newest rounds, and the first kFirst, keep the evidence of consequences.
  static constexpr std::size_t kLastInFull = 8;
  static constexpr std::size_t kConsequences = 8;  // consequences per round that are kept in full
  static constexpr std::size_t kRanksNamed = 64;   // ranks listed for each cause of the other consequences

  // Call it after a round was appended. Returns true if it removed a round in the middle.
  bool appended(ReportJson& rounds);
  // Marks a round as changed that is not the last one.
  void changed(std::size_t round);
  // The whole document with these "rounds", formatted as by dump(2). The last round is always formatted again, since it may
  // have changed.
  std::string text_of(const ReportJson& document);

  // Number of rounds formatted so far. Tests use it to measure the amount of work.
  std::int64_t worded() const { return worded_; }

 private:
  std::vector<std::string> texts_;  // empty: must be formatted
  std::int64_t worded_ = 0;
};

void add_consequences(ReportJson& round, const std::vector<Failure>& consequences);

}  // namespace ddprun
