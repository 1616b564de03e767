// The published checkpoints of a run directory, as far as names tell. Opening a directory (run_directory.cpp) and a directory
// that was moved away (moved_run.cpp) ask for them; the trainer verifies them.
#pragma once

#include <filesystem>
#include <vector>

#include "common/run_directory/run_directory.hpp"

namespace ddprun {

// Their folders, newest first. The link `latest` is not used: a writer that is killed between its two renames leaves the old
// link, and users remove it. Empty where there is no such folder.
std::vector<std::filesystem::path> published_checkpoints(const RunLayout& layout);

}  // namespace ddprun
