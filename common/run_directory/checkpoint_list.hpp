// Lists the published checkpoints of a run directory by their names, without reading them. It is called when a directory is
// opened (run_directory.cpp), and after it was moved away (moved_run.cpp). The trainer verifies a checkpoint before it uses it.
#pragma once

#include <filesystem>
#include <vector>

#include "common/run_directory/run_directory.hpp"

namespace ddprun {

// Returns the folders of the checkpoints, newest first; empty if there are none. The link `latest` is not used, since it may be
// outdated or missing. A writer may be killed between its two renames, and users may remove the link.
std::vector<std::filesystem::path> published_checkpoints(const RunLayout& layout);

}  // namespace ddprun
