// Fills the gaps that a lost rank leaves in the ledger. A survivor may have finished the newest step while the line of the lost
// rank is missing. The next group then adds the line, to the lost rank's own file. A second loss in the meantime does not add
// it twice, since the file shows which lines exist. trainer/life/prepare_workspace.cpp calls this when survivors have formed a
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
  std::int64_t since = 0;         // finished steps when the group began
  std::int64_t started_from = 0;  // finished steps when the invocation began; lines up to there belong to earlier invocations
};

struct LedgerGap {
  int rank = 0;            // its rank in the previous group
  std::int64_t after = 0;  // newest step with a line in the file
  bool operator==(const LedgerGap&) const = default;
};

// The gaps that rank `rank` of `world` fills: those in its own file, and in files of ranks that no longer exist. Each of these
// files is assigned to one rank. A missing file is on another node's disk and left to that node, unless it is this rank's own.
std::vector<LedgerGap> ledger_gaps(const std::filesystem::path& folder, const GroupBefore& before, int rank, int world);

// Adds the lines up to `step`. Errors are reported as in Ledger.
void fill_ledger_gaps(const std::filesystem::path& folder, const std::vector<LedgerGap>& gaps, const GroupBefore& before,
                      std::int64_t step, const RunLength& length, std::uint64_t seed,
                      const std::function<void(const std::string&)>& on_trouble);

}  // namespace ddprun::trainer
