// Finds the report.json of a run for `ddprun report`: the report in a folder that the user names, or the report of the newest
// run.
#pragma once

#include <filesystem>

namespace ddprun {

// Returns the path of the report in `folder`. If there is none, and `folder` is a --log-dir, returns the report of the newest
// run in that directory.
std::filesystem::path report_in(const std::filesystem::path& folder);

// Returns the path of the report of this user's newest run, or an empty path if there is none. It searches the running jobs,
// the current folder and its subfolders, the subfolders of `runs`, and the folder for temporary files.
std::filesystem::path report_of_newest_run();

}  // namespace ddprun
