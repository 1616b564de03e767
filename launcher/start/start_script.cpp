// Implementation of start_script.hpp. The folders are removed while the guardian ends, which takes about as long.
#include "launcher/start/start_script.hpp"

#include <utility>

#include "launcher/start/directory_role.hpp"
#include "launcher/start/run_plan.hpp"
#include "launcher/start/script_folders.hpp"

namespace ddprun {

int start_script(const Plan& plan, const Environment& environment, std::optional<NetworkStart> network) {
  ScriptFolders folders;
  const auto open = [&] { folders = make_script_folders(plan, environment, FolderOwner::kThisNode); };
  if (open_or_follow(plan.run_dir, network, {.open = open}) == DirectoryRole::kFollow) {
    folders = make_script_folders(plan, environment, FolderOwner::kOtherNode);
  }
  ConsoleFacts facts;
  if (!folders.note.empty()) facts.opening.push_back(folders.note);
  if (plan.input == WorkersInput::kTerminalIsKept) {
    facts.opening.emplace_back(
        "the workers' standard input is /dev/null: a terminal is passed on to a single worker (--nproc-per-node 1), and only "
        "in the foreground; a file or a pipe reaches all of them");
  }
  using Kept = ReportFacts::Kept;
  const Kept kept = goes_when_all_goes_well(folders, plan) ? Kept::kUnlessAllGoesWell : Kept::kAlways;
  return run_plan(plan, folders.files, std::move(facts), std::move(network), kept,
                  [&](int exit_code) { leave_script_folders(folders, plan, exit_code); });
}

}  // namespace ddprun
