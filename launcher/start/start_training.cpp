// Implementation of start_training.hpp: the steps of the leader and of a follower, and the first lines of the console.
#include "launcher/start/start_training.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/shared_folder/others_link.hpp"
#include "common/system/print.hpp"
#include "launcher/own_worker/worker_record.hpp"
#include "launcher/report/report_summary.hpp"
#include "launcher/start/directory_role.hpp"
#include "launcher/start/private_config.hpp"
#include "launcher/start/refusals.hpp"
#include "launcher/start/run_plan.hpp"
#include "launcher/start/script_folders.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

int follow_training(Plan plan, std::optional<NetworkStart> network) {
  const PrivateConfig config(*plan.config);
  plan.command.back() = config.file().string();
  const fs::path report = report_of_other_node(plan.run_dir);
  refuse_others_links(plan.run_dir);
  std::error_code error;
  fs::create_directories(report.parent_path(), error);
  if (error)
    throw UsageError("cannot make " + report.parent_path().string() + ": " + error.message() +
                     "; --run-dir names another place");
  return run_plan(plan, {-1, plan.run_dir / "logs", report}, {}, std::move(network));
}

enum class Nodes { kOne, kMany };

std::vector<std::string> lines_of_notes(const RunState& state) {
  std::vector<std::string> lines;
  std::string_view notes = state.notes;
  while (!notes.empty()) {
    const std::size_t end = notes.find('\n');
    if (end != 0) lines.push_back("note: " + std::string(notes.substr(0, end)));
    notes.remove_prefix(end == std::string_view::npos ? notes.size() : end + 1);
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
    lines.emplace_back("note: no checkpoint of the earlier start is there; training begins again from step 0");
  }
  for (std::string& line : lines_of_notes(state)) lines.push_back(std::move(line));
  if (const std::string other = keep_worker_record(state.layout.worker(), plan.worker); !other.empty()) {
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
  const DirectoryRole role = open_or_follow(plan.run_dir, network, {.check = [&] { refuse_to_mix(plan); }, .open = open});
  if (role == DirectoryRole::kFollow) return follow_training(plan, std::move(network));
  return lead_training(plan, *opened, std::move(network));
}

}  // namespace ddprun
