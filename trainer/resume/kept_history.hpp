// Keeps the history of a run whose checkpoints were removed when a new run begins at step 0 in its directory. The metrics and
// the ledger are the only record of that run, so they are renamed and not cut.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/run_directory/run_directory.hpp"

namespace ddprun::trainer {

// Renames metrics.jsonl, ledger and tensorboard to <name>.1 (.2, ...) if metrics.jsonl mentions a published checkpoint. Returns
// the new paths, none if there is nothing to keep. Called by rank 0 before any of these files is opened. Throws
// std::system_error.
std::vector<std::filesystem::path> keep_history_without_checkpoints(const RunLayout& layout);

}  // namespace ddprun::trainer
