// What a lost rank left out of the ledger. The newest step is finished on a rank that outlived another, or was ahead of it, and
// that one's line may be missing: who comes after it adds the line, to the lost one's own file, so that a second loss meanwhile
// finds what is there already and adds nothing twice. trainer/life/prepare_workspace.cpp calls it when survivors have made a
// new group.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trainer/data/run_length.hpp"

namespace ddprun::trainer {

// The group that made the steps up to the newest one.
struct GroupBefore {
  int world = 0;
  std::int64_t since = 0;         // finished steps when it began
  std::int64_t started_from = 0;  // those of the run, whose lines are none of this invocation's business
};

struct LedgerGap {
  int rank = 0;            // in the group before
  std::int64_t after = 0;  // the newest step whose line is there
  bool operator==(const LedgerGap&) const = default;
};

// Those that rank `rank` of `world` sees to: its own file's, and those of ranks that are no more, of which each is one rank's
// business. A file that is not there is on a node's own disk and its business, but for one's own.
std::vector<LedgerGap> ledger_gaps(const std::filesystem::path& folder, const GroupBefore& before, int rank, int world);

// Adds the lines up to `step`. Trouble is told as by Ledger.
void fill_ledger_gaps(const std::filesystem::path& folder, const std::vector<LedgerGap>& gaps, const GroupBefore& before,
                      std::int64_t step, const RunLength& length, std::uint64_t seed,
                      const std::function<void(const std::string&)>& on_trouble);

}  // namespace ddprun::trainer
