// Adds the ledger lines that a lost rank did not write. The ledger has a line with the samples of each rank in each step. A
// rank can be lost after the last all-reduce of a step and before it writes its line. The survivors finish the step, but the
// samples of the lost rank are missing in the ledger. The ranks of the next group compute these samples and add the missing
// line to the file of the lost rank. They read the file first, so that no line is added twice, even if another rank is lost in
// the meantime. trainer/life/prepare_workspace.cpp calls this after survivors have formed a new group.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trainer/data/run_length.hpp"

namespace ddprun::trainer {

// The process group that lost a rank.
struct PreviousGroup {
  int world = 0;
  std::int64_t since = 0;         // number of finished steps at the start of the group
  std::int64_t started_from = 0;  // number of finished steps when ddprun was started; earlier lines are never added
};

// The missing lines at the end of one file.
struct LedgerGap {
  int rank = 0;            // the rank whose file has the gap, as numbered in the previous group
  std::int64_t after = 0;  // the lines of all steps after this step are missing
  bool operator==(const LedgerGap&) const = default;
};

// Returns the gaps that rank `rank` of `world` fills: the gaps in its own file, and the gaps in the files of some ranks that
// no longer exist. Each file is assigned to exactly one rank. If the file of another rank does not exist in `folder`, it is on
// the disk of another node, and is skipped.
std::vector<LedgerGap> ledger_gaps(const std::filesystem::path& folder, const PreviousGroup& before, int rank, int world);

// Adds the missing lines up to `step`, with the samples that the sampler assigned to the lost rank. Errors are reported to
// `on_trouble`, as in Ledger.
void fill_ledger_gaps(const std::filesystem::path& folder, const std::vector<LedgerGap>& gaps, const PreviousGroup& before,
                      std::int64_t step, const RunLength& length, std::uint64_t seed,
                      const std::function<void(const std::string&)>& on_trouble);

}  // namespace ddprun::trainer
