// Implementation of start_script.hpp. The folders are removed while the guardian ends, since both take about the same time.
#include "launcher/launch/start_script.hpp"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/exit_code.hpp"
#include "common/system/write_all.hpp"
#include "launcher/launch/directory_role.hpp"
#include "launcher/launch/run_plan.hpp"
#include "launcher/launch/script_folders.hpp"
#include "launcher/options/option_spellings.hpp"

namespace ddprun {
namespace {

// A script that parses its options with argparse exits with 2 at an unknown option. The user may have put one of ddprun's
// options after the script.
void print_misplaced_options(const Plan& plan) {
  const std::vector<std::string> options = ddprun_options_in(plan.command);
  if (options.empty()) return;
  const std::string line =
      "ddprun: " + options.front() +
      " is placed after the script, so the script received it. Place ddprun's options before the script: ddprun " +
      options.front() + " ... SCRIPT\n";
  write_all(STDERR_FILENO, line);
}

}  // namespace

int start_script(const Plan& plan, const Environment& environment, std::optional<NetworkStart> network) {
  ScriptFolders folders;
  const auto open = [&] { folders = make_script_folders(plan, environment, FolderOwner::kThisNode); };
  if (acquire_or_follow(plan.run_dir, network, {.open = open}) == DirectoryRole::kFollow) {
    folders = make_script_folders(plan, environment, FolderOwner::kOtherNode);
  }
  ConsoleFacts facts;
  if (!folders.note.empty()) facts.opening.push_back(folders.note);
  using Kept = ReportFacts::Kept;
  const Kept kept = removed_on_success(folders, plan) ? Kept::kUnlessSuccessful : Kept::kAlways;
  const int exit_code = run_plan(plan, folders.files, std::move(facts), std::move(network), kept,
                                 [&](int code) { release_script_folders(folders, plan, code); });
  if (exit_code == static_cast<int>(ExitCode::kUsage)) print_misplaced_options(plan);
  return exit_code;
}

}  // namespace ddprun
