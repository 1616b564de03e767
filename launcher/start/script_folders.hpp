// Where a script, module or program leaves its logs and report: torchrun's folders, or a run directory. start_script.cpp calls
// it before anything is started and after everything has ended. Nothing of a run that failed is removed.
#pragma once

#include <filesystem>
#include <string>

#include "launcher/agent/agent.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

struct ScriptFolders {
  AgentFiles files;
  std::filesystem::path temporary;  // in $TMPDIR, made for this run; empty when the user named a folder
  std::string note;                 // for people, at the start; may be empty
};

// Makes the folder for logs and returns its place: <log_dir>/<run id>_<random>, in a new $TMPDIR/torchelastic_<random> without
// --log-dir; logs/ of the run directory with --run-dir alone; none for --log-dir /dev/null. kThisNode also takes the run
// directory's lock, kOtherNode only adds its logs. Throws UsageError when a folder that the user named can't be made. When no
// temporary one can be made, the run continues without files, and the note says so.
enum class FolderOwner { kThisNode, kOtherNode };
ScriptFolders make_script_folders(const Plan& plan, const Environment& environment, FolderOwner owner);

// Where a node that does not own the run directory writes its report: into the folder of its logs.
std::filesystem::path report_of_other_node(const std::filesystem::path& run_dir);

// Whether the folders are removed if the first attempt succeeds: they are temporary, and no output is sent there.
bool goes_when_all_goes_well(const ScriptFolders& folders, const Plan& plan);

// Closes the lock. Removes the folders if they are temporary and the job has succeeded.
void leave_script_folders(const ScriptFolders& folders, const Plan& plan, int exit_code);

}  // namespace ddprun
