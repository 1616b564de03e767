// The published checkpoints of a run directory, by name only. Used when a directory is opened (run_directory.cpp) and after it
// was moved away (moved_run.cpp); the trainer verifies the checkpoints.
#pragma once

#include <filesystem>
#include <vector>

#include "common/run_directory/run_directory.hpp"

namespace ddprun {

// Their folders, newest first. It does not use the link `latest`: a writer that is killed between its two renames leaves the
// old link, and users remove it. Empty if there is no checkpoint folder.
std::vector<std::filesystem::path> published_checkpoints(const RunLayout& layout);

}  // namespace ddprun
