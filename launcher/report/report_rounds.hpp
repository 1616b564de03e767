// Limits the size of report.json and the work to format it.
//
// A job may fail ten thousand times, and hundreds of workers may fail together. If all rounds and failures were kept in full,
// the report would grow without a limit. Each event would format all of it again. Two limits keep it below a few megabytes:
// - If there are many rounds, only the first 20 and the last 80 are kept. Older rounds lose the evidence of consequences.
// - If a round has many consequences, only the first 8 are kept in full. The others are listed as rank numbers by cause.
//
// The class also caches the text of each unchanged round, so only changed rounds are formatted again. report_document.hpp has
// one ReportRounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/events/run_event.hpp"
#include "launcher/report/report_metrics.hpp"

namespace ddprun {

class ReportRounds {
 public:
  static constexpr std::size_t kFirst = 20, kLast = 80;  // number of rounds kept at the start and at the end of the run
  // Evidence of consequences is kept only in the first kFirst rounds and in this number of newest rounds.
  static constexpr std::size_t kLastInFull = 8;
  static constexpr std::size_t kConsequences = 8;  // consequences per round that are kept in full
  // maximum number of ranks that are listed for each cause of the consequences that are not kept in full
  static constexpr std::size_t kRanksNamed = 64;

  // Applies the limits. Call this after a round was appended. Returns true if a round in the middle was removed.
  bool appended(ReportJson& rounds);
  // Call this after a change of a round that is not the last one. `round` is its index.
  void changed(std::size_t round);
  // Returns the text of the whole document, in the format of dump(2). The last round is always formatted again, since it may
  // have changed without a call to changed().
  std::string text_of(const ReportJson& document);

  // Returns the number of rounds that were formatted since the start. Tests measure the work with it.
  std::int64_t formatted_rounds() const { return formatted_rounds_; }

 private:
  std::vector<std::string> texts_;  // text of each round; empty if the round must be formatted
  std::int64_t formatted_rounds_ = 0;
};

// Adds a failure's consequences to the round: the first kConsequences in full, the others as rank numbers, grouped by cause.
void add_consequences(ReportJson& round, const std::vector<Failure>& consequences);

}  // namespace ddprun
