// What a run that begins at step 0 finds of a run that had checkpoints and has them no more: somebody removed them. Its figures
// and its ledger are the only record of that run, so they are renamed rather than cut.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/run_directory/run_directory.hpp"

namespace ddprun::trainer {

// Renames metrics.jsonl, ledger and tensorboard to <name>.1 (.2, ...) when metrics.jsonl tells of a published checkpoint;
// returns the new paths, none when there is nothing to keep. Called by rank 0 before anything is opened. Throws
// std::system_error.
std::vector<std::filesystem::path> keep_history_without_checkpoints(const RunLayout& layout);

}  // namespace ddprun::trainer
