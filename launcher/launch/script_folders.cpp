// Implementation of script_folders.hpp: torchrun's naming rules, and the cleanup at the end.
#include "launcher/launch/script_folders.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "common/base/error.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/run_directory/run_lock.hpp"
#include "common/shared_folder/others_link.hpp"
#include "common/system/host_name.hpp"
#include "common/system/unique_folder.hpp"
#include "launcher/output/worker_output_files.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

void make(const fs::path& folder, const char* what) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError(std::string("cannot make the ") + what + " " + folder.string() + ": " + error.message());
}

// Creates the folder `parent`/<run id>_<random letters>, as torchrun does.
std::optional<fs::path> folder_of_run(const fs::path& parent, std::string run_id) {
  std::replace(run_id.begin(), run_id.end(), '/', '_');
  return make_unique_folder(parent, run_id + "_");
}

fs::path run_folder(const fs::path& parent, const std::string& run_id) {
  if (const auto folder = folder_of_run(parent, run_id)) return *folder;
  throw UsageError("cannot create a folder for logs in " + parent.string() + ": " + std::strerror(errno));
}

// Creates a folder in the first of the usual temporary folders that is writable, in the order of Python's tempfile.
fs::path temporary_folder(const Environment& environment) {
  for (const char* variable : {"TMPDIR", "TEMP", "TMP"}) {
    const auto place = environment(variable);
    if (!place || place->empty()) continue;
    std::error_code error;
    const fs::path absolute = fs::absolute(*place, error);
    if (error) continue;
    if (const auto folder = folder_of_run(absolute, "torchelastic")) return *folder;
  }
  for (const char* place : {"/tmp", "/var/tmp"}) {
    if (const auto folder = folder_of_run(place, "torchelastic")) return *folder;
  }
  return {};
}

bool sends_output_to_files(const OutputPlan& output) {
  return output.redirects.any() || output.tee.any();
}

// Removes the files of a run that had no restarts and wrote no logs: empty folders and a report. It removes only known names,
// which is faster than a search. If any other file exists, the last rmdir fails and the result is false.
bool remove_created_files(const ScriptFolders& folders, int workers) {
  const fs::path round = round_folder(folders.files.log_root, LogLayout::kAttempts, 0, 0);
  for (int rank = 0; rank < workers; ++rank) ::rmdir(worker_folder(round, LogLayout::kAttempts, rank, rank).c_str());
  ::rmdir(round.c_str());
  ::unlink(folders.files.report.c_str());
  ::rmdir(folders.files.log_root.c_str());
  return ::rmdir(folders.temporary.c_str()) == 0;
}

}  // namespace

ScriptFolders make_script_folders(const Plan& plan, const Environment& environment, FolderOwner owner) {
  ScriptFolders folders;
  if (!plan.run_dir.empty() && owner == FolderOwner::kOtherNode) {
    refuse_others_links(plan.run_dir);
    make(plan.run_dir / "logs", "folder for logs");
    folders.files.report = report_of_other_node(plan.run_dir);
  } else if (!plan.run_dir.empty()) {
    make(plan.run_dir, "run directory");
    folders.files.lock_fd = take_run_lock(plan.run_dir);  // two jobs must not use the same run directory
    folders.files.report = RunLayout{plan.run_dir}.report();
  }
  if (plan.output.no_files) return folders;
  if (!plan.run_dir.empty() && plan.log_dir.empty()) {
    folders.files.log_root = plan.run_dir / "logs";
    return folders;
  }

  fs::path parent = plan.log_dir;
  if (parent.empty()) {
    parent = folders.temporary = temporary_folder(environment);
    if (parent.empty()) {
      folders.note =
          "no folder for logs could be created in $TMPDIR, /tmp or /var/tmp, so the job has no log files, error files or "
          "report: choose a folder with --log-dir";
      return folders;
    }
  } else {
    make(parent, "folder for logs");
  }
  folders.files.layout = LogLayout::kAttempts;
  folders.files.log_root = run_folder(parent, plan.run_id);
  if (plan.run_dir.empty()) folders.files.report = folders.files.log_root / "report.json";
  if (!folders.temporary.empty() && sends_output_to_files(plan.output)) {
    folders.note = "logs are in " + folders.files.log_root.string();
  }
  return folders;
}

fs::path report_of_other_node(const fs::path& run_dir) {
  return run_dir / "logs" / ("report-" + host_file_name() + "-" + std::to_string(::getpid()) + ".json");
}

bool removed_on_success(const ScriptFolders& folders, const Plan& plan) {
  return !folders.temporary.empty() && !sends_output_to_files(plan.output);
}

void release_script_folders(const ScriptFolders& folders, const Plan& plan, int exit_code) {
  if (folders.files.lock_fd >= 0) ::close(folders.files.lock_fd);
  std::error_code ignored;
  if (exit_code != 0 || !removed_on_success(folders, plan)) return;
  // If the folder attempt_1 exists, the job was restarted, and the files are kept.
  if (fs::exists(folders.files.log_root / "attempt_1", ignored)) return;
  if (!remove_created_files(folders, plan.nproc_per_node)) fs::remove_all(folders.temporary, ignored);
}

}  // namespace ddprun
