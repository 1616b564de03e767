// The folders for logs and report of a script, module or program: torchrun's folders, or a run directory. start_script.cpp
// calls these functions before anything is started and after everything has ended. The files of a failed run are never removed.
#pragma once

#include <filesystem>
#include <string>

#include "launcher/agent/agent.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

struct ScriptFolders {
  AgentFiles files;
  std::filesystem::path temporary;  // a folder in $TMPDIR for this run; empty if the user named a folder
  std::string note;                 // text for the user, shown at the start; may be empty
};

// Creates the folder for logs and returns its path. With --log-dir the path is <log_dir>/<run id>_<random>, and no folder is
// created for --log-dir /dev/null. With only --run-dir the path is logs/ in the run directory. Otherwise it is <run
// id>_<random> in a new $TMPDIR/torchelastic_<random>. The owner of a run directory (kThisNode) also takes its lock; any other
// node (kOtherNode) only adds its logs. Throws UsageError if a folder that the user named can't be created. If no temporary
// folder can be created, the run continues without files, and the note reports it.
enum class FolderOwner { kThisNode, kOtherNode };
ScriptFolders make_script_folders(const Plan& plan, const Environment& environment, FolderOwner owner);

// Returns the path of the report of a node that does not own the run directory. This report is in the folder with the node's
// logs.
std::filesystem::path report_of_other_node(const std::filesystem::path& run_dir);

// Returns true if the folders are removed when the job succeeds without a restart: they are temporary, and no output is
// written there.
bool removed_on_success(const ScriptFolders& folders, const Plan& plan);

// Releases the lock. Removes the folders if they are temporary and the job has succeeded.
void release_script_folders(const ScriptFolders& folders, const Plan& plan, int exit_code);

}  // namespace ddprun
