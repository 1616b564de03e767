// Implementation of start_training.hpp: the steps of the leader and of a follower, and the first lines of console output.
#include "launcher/launch/start_training.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/split.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/shared_folder/others_link.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/print.hpp"
#include "common/system/unique_folder.hpp"
#include "launcher/custom_worker/program_record.hpp"
#include "launcher/launch/directory_role.hpp"
#include "launcher/launch/refusals.hpp"
#include "launcher/launch/removed_folder.hpp"
#include "launcher/launch/run_plan.hpp"
#include "launcher/launch/script_folders.hpp"
#include "launcher/report/report_summary.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

int follow_training(Plan plan, std::optional<NetworkStart> network) {
  // The leader's config.json may be on another disk, so this node writes its own file.
  const RemovedFolder folder{make_temporary_folder("ddprun-config-")};
  plan.command.back() = (folder.path / "config.json").string();
  write_file_atomically(plan.command.back(), to_json_text(*plan.config));
  const fs::path report = report_of_other_node(plan.run_dir);
  refuse_others_links(plan.run_dir);
  std::error_code error;
  fs::create_directories(report.parent_path(), error);
  if (error)
    throw UsageError("cannot make " + report.parent_path().string() + ": " + error.message() +
                     "; choose another folder with --run-dir");
  return run_plan(plan, {-1, plan.run_dir / "logs", report}, {}, std::move(network));
}

enum class Nodes { kOne, kMany };

std::vector<std::string> lines_of_notes(const RunState& state) {
  std::vector<std::string> lines;
  for (const std::string_view note : split(state.notes, '\n')) {
    if (!note.empty()) lines.push_back("note: " + std::string(note));
  }
  return lines;
}

// Lines about the state found in the run directory. The console prints them first.
std::vector<std::string> opening_lines(const Plan& plan, const RunState& state, Nodes nodes) {
  std::vector<std::string> lines;
  if (!state.renamed_to.empty()) lines.push_back("the earlier run is kept as " + state.renamed_to);
  if (state.latest_step && plan.resume == Plan::Resume::kAuto) {
    lines.push_back("resuming: the newest checkpoint is of step " + std::to_string(*state.latest_step));
  }
  const bool copies_elsewhere = !plan.config->checkpoint.local_dir.empty() || nodes == Nodes::kMany;
  if (plan.resume == Plan::Resume::kAuto && state.resumed && !has_checkpoints(plan) && !copies_elsewhere) {
    lines.emplace_back("note: no checkpoint of the earlier start was found; training starts again from step 0");
  }
  for (std::string& line : lines_of_notes(state)) lines.push_back(std::move(line));
  if (const std::string other = update_program_record(state.layout.worker(), plan.worker); !other.empty()) {
    lines.push_back("note: " + other);
  }
  return lines;
}

int lead_training(const Plan& plan, const RunState& state, std::optional<NetworkStart> network) {
  if (state.finished && plan.resume == Plan::Resume::kAuto) {
    for (const std::string& line : lines_of_notes(state)) std::fprintf(stderr, "ddprun: %s\n", line.c_str());
    print(already_done(plan, state));
    return 0;
  }
  ConsoleFacts facts{.opening = opening_lines(plan, state, network ? Nodes::kMany : Nodes::kOne), .report = {}};
  const int exit_code =
      run_plan(plan, {state.lock_fd, plan.run_dir / "logs", state.layout.report()}, std::move(facts), std::move(network));
  ::close(state.lock_fd);
  return exit_code;
}

}  // namespace

int start_training(const Plan& plan, std::optional<NetworkStart> network) {
  std::optional<RunState> opened;
  const auto open = [&] {
    opened = open_run_directory(plan.run_dir, *plan.config, plan.fresh ? FreshStart::kRename : FreshStart::kNo);
  };
  const DirectoryRole role =
      acquire_or_follow(plan.run_dir, network, {.check = [&] { refuse_mixed_history(plan); }, .open = open});
  if (role == DirectoryRole::kFollow) return follow_training(plan, std::move(network));
  return lead_training(plan, *opened, std::move(network));
}

}  // namespace ddprun
