// Preserves the metrics of an earlier run when a new run starts at step 0 in the same directory. If a user has removed the
// checkpoints of the earlier run, its metrics and ledger are the only record of that run. They are renamed, since the new run
// would otherwise delete their content.
#pragma once

#include <filesystem>
#include <vector>

#include "common/run_directory/run_directory.hpp"

namespace ddprun::trainer {

// If metrics.jsonl contains a published checkpoint, renames metrics.jsonl, ledger and tensorboard to <name>.1 (.2, ...).
// Returns the new paths, or an empty list if nothing was renamed. Only rank 0 calls this function, before any of these files is
// opened. Throws std::system_error.
std::vector<std::filesystem::path> archive_orphaned_history(const RunLayout& layout);

}  // namespace ddprun::trainer
