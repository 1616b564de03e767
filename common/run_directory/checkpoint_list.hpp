// Lists the published checkpoints of a run directory by their names, without reading them. run_directory.cpp calls it when it
// opens a run directory. moved_run.cpp calls it after a run directory was moved away. The trainer verifies a checkpoint before
// it uses it.
#pragma once

#include <filesystem>
#include <vector>

#include "common/run_directory/run_directory.hpp"

namespace ddprun {

// Returns the folders of the checkpoints, newest first; empty if there are none. The link `latest` is not used. It is outdated
// if a writer was killed between its two renames, and a user may have removed it.
std::vector<std::filesystem::path> published_checkpoints(const RunLayout& layout);

}  // namespace ddprun
