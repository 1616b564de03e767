// Opens a run directory in three steps, so that it overwrites no file of another run. Step 1 checks that the directory is a run
// directory. Step 2 takes its lock and compares the configs. Step 3 writes config.json.
#include "common/run_directory/run_directory.hpp"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <vector>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/checkpoint_list.hpp"
#include "common/run_directory/run_lock.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/descriptor.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kElsewhere = "choose another --run-dir";

std::string numbered(const char* format, long long number) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, number);
  return text.data();
}

// Returns the absolute path without a slash at the end, so that --fresh can append a number.
fs::path tidy(const fs::path& root) {
  fs::path path = fs::absolute(root).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// ---- checks of the folder ----

// Returns true for names of files that may exist without a config.json. These files are a token, logs of scripts, files of a
// run that was killed at its start, and files of workers on a node that has never been the coordinator.
bool may_precede_config(const std::string& name) {
  return name == "lock" || name == "token" || name == "logs" || name == "report.json" || name == "run.json" ||
         name == "worker.json" || name.starts_with(".worker.json.tmp-") ||
         name == "lost+found" ||  // a folder of the file system, if the run directory is a mount point
         name.starts_with(".run.json.tmp-") || name.starts_with(".config.json.tmp-") || name.starts_with(".report.json.tmp-") ||
         name == "slurm" || name == "requeues.json" || name.starts_with(".requeues.json.tmp-") ||  // files of ddprun submit
         name.starts_with(".token.tmp-") || name.starts_with("..token.tmp-");  // another node is creating the token now
}

bool is_run_file(const std::string& name) {
  return may_precede_config(name) || name == "config.json" || name == "metrics.jsonl" || name == "tensorboard" ||
         name == "traces" || name == "checkpoints" || name == "ledger" || name == "memory-fit.json" ||
         name.starts_with(".metrics.jsonl.tmp-");
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) throw UsageError("cannot read run directory " + folder.string() + ": " + error.message() + "; " + kElsewhere);
  std::sort(names.begin(), names.end());
  return names;
}

// Returns true for an empty folder, or a link to one.
bool is_empty_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error) && fs::is_empty(path, error) && !error;
}

bool has(const std::vector<std::string>& names, const char* name) {
  return std::binary_search(names.begin(), names.end(), name);
}

// Throws UsageError if the directory contains files that ddprun did not write. Such files must not be mixed with the files of
// a run, and --fresh must not rename them. If the directory has both config.json and a lock file of ddprun, any other files
// are accepted, because users may add notes. config.json alone is not enough, because other programs have a file of that name
// too.
void refuse_foreign(const RunLayout& layout, const std::vector<std::string>& names) {
  if (has(names, "config.json") && has(names, "lock")) return;
  std::string foreign;
  int count = 0;
  for (const std::string& name : names) {
    if (!is_run_file(name) && ++count <= 3) foreign += (foreign.empty() ? "" : ", ") + name;
  }
  if (count == 0) return;
  if (count > 3) foreign += " and " + std::to_string(count - 3) + " more";
  throw UsageError(layout.root.string() + " is not a run directory: it contains files from other programs (" + foreign + "); " +
                   kElsewhere);
}

// Throws UsageError if there are results but no config.json. ddprun then cannot check that the results belong to this config.
void refuse_lost_config(const RunLayout& layout, const std::vector<std::string>& names) {
  if (has(names, "config.json")) return;
  for (const std::string& name : names) {
    if (may_precede_config(name) || is_empty_folder(layout.root / name)) continue;
    throw UsageError("run directory " + layout.root.string() + " has " + name +
                     " but no config.json, so ddprun cannot check that this folder belongs to the same config: use --fresh to "
                     "keep the folder under another name and start over, or " +
                     kElsewhere);
  }
}

// ---- creation and renaming ----

// Returns true if `root` exists. Throws UsageError if it is not a folder.
bool require_folder(const fs::path& root) {
  std::error_code error;
  const fs::file_status status = fs::status(root, error);
  if (fs::exists(status)) {
    if (fs::is_directory(status)) return true;
    throw UsageError("run directory " + root.string() + " is a file, expected a folder: " + kElsewhere);
  }
  if (!fs::is_symlink(fs::symlink_status(root, error))) return false;
  throw UsageError("run directory " + root.string() + " is a link to " + fs::read_symlink(root, error).string() +
                   ", which does not exist: create that folder or " + kElsewhere);
}

void make_directory(const fs::path& root) {
  if (require_folder(root)) return;
  std::error_code error;
  fs::create_directories(root, error);
  if (error)
    throw UsageError("cannot create run directory " + root.string() + ": " + error.message() + "; fix the cause or " +
                     kElsewhere);
}

bool rename_without_replacing(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  // Some file systems, such as NFS, do not support the flag. The check and the rename are then separate steps, but the run
  // directory's lock prevents another invocation of ddprun from doing them at the same time.
  if (errno == EINVAL || errno == ENOSYS) {
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(to, ignored))) {
      errno = EEXIST;
      return false;
    }
    return ::rename(from.c_str(), to.c_str()) == 0;
  }
  return false;
}

fs::path set_aside(const fs::path& root) {
  constexpr int kMaxRenames = 100'000;
  for (int number = 1; number <= kMaxRenames; ++number) {
    fs::path target = root.string() + "." + std::to_string(number);
    if (rename_without_replacing(root, target)) return target;
    if (errno != EEXIST && errno != ENOTEMPTY) {
      throw UsageError("cannot rename " + root.string() + " to " + target.string() + " for --fresh: " + std::strerror(errno) +
                       "; " + kElsewhere);
    }
  }
  throw UsageError("cannot rename " + root.string() + " for --fresh: all names up to ." + std::to_string(kMaxRenames) +
                   " are taken; " + kElsewhere);
}

// ---- folder of the local checkpoint copies ----

// Throws UsageError if checkpoint.local_dir is inside the run directory. The local copies must survive the loss of the run
// directory, and --fresh would rename them.
void refuse_local_copies_inside(const fs::path& root, const TrainConfig& config) {
  if (config.checkpoint.local_dir.empty()) return;
  std::error_code unknown;
  const fs::path local = fs::weakly_canonical(config.checkpoint.local_dir, unknown);
  const fs::path run = fs::weakly_canonical(root, unknown);
  if (std::mismatch(run.begin(), run.end(), local.begin(), local.end()).first != run.end()) return;
  throw UsageError("checkpoint.local_dir is " + config.checkpoint.local_dir + ", which is inside the run directory " +
                   root.string() + ": set it to a folder on each node's own disk (/checkpoint/local_dir)");
}

// ---- comparison of the configs ----

// Throws UsageError if the config is not a regular file. For example, reading a pipe would block.
void require_regular_file(const fs::path& config) {
  std::error_code unknown;
  if (!fs::exists(config, unknown) || fs::is_regular_file(config, unknown)) return;
  throw UsageError(config.string() + " is not a regular file: expected the run's config file; move it away, or " + kElsewhere);
}

// Reads the config.json of the run. `task` has the keys of the worker program that will continue the run.
TrainConfig read_old_config(const RunLayout& layout, const TaskConfig& task) {
  try {
    return load_config(layout.config(), {}, nullptr, [&](const std::string&) { return task.defaults(); });
  } catch (const UsageError& error) {
    throw UsageError(
        "run directory " + layout.root.string() +
        " has a config.json that cannot be read: use --fresh to keep the directory under another name and start over, or " +
        kElsewhere + ". " + error.what());
  }
}

// Returns notes about differences in keys that may change. Throws UsageError for differences in other keys.
std::string compare_with(const TrainConfig& old_config, const TrainConfig& config, const RunLayout& layout) {
  std::string notes, refusals;
  for (const ConfigDifference& difference : compare_configs(old_config, config)) {
    if (difference.may_change) {
      notes +=
          (notes.empty() ? "" : "\n") + difference.pointer + " changed from " + difference.before + " to " + difference.after;
    } else {
      refusals += "\n  " + difference.pointer + ": " + difference.before + " before, " + difference.after + " now";
    }
  }
  if (refusals.empty()) return notes;
  throw UsageError("run directory " + layout.root.string() + " belongs to another config:" + refusals +
                   "\nUse --fresh to keep it under another name and start over, or " + kElsewhere + ".");
}

void write_config(const RunLayout& layout, const TrainConfig& config) {
  const std::string text = to_json_text(config);
  std::ostringstream old_text;
  if (std::ifstream in(layout.config(), std::ios::binary); in) old_text << in.rdbuf();
  if (old_text.str() == text) return;
  try {
    write_file_atomically(layout.config(), text);
  } catch (const std::system_error& error) {
    throw UsageError(std::string(error.what()) + "; fix the cause or " + kElsewhere);
  }
}

// Throws UsageError if `checkpoints` is not a folder. Without this check, each worker would fail later, when it lists
// checkpoints, and restarts would not help.
void require_checkpoint_folder(const RunLayout& layout) {
  std::error_code error;
  const fs::file_status status = fs::status(layout.checkpoints(), error);
  const bool dangling = !fs::exists(status) && fs::is_symlink(fs::symlink_status(layout.checkpoints(), error));
  if (fs::is_directory(status) || (!fs::exists(status) && !dangling)) return;
  throw UsageError(layout.checkpoints().string() + " must be the run's checkpoint folder, found " +
                   (dangling ? "a link to " + fs::read_symlink(layout.checkpoints(), error).string() + ", which does not exist"
                    : fs::is_regular_file(status) ? "a file"
                                                  : "a special file") +
                   ": move it away, use --fresh to keep the run directory under another name and start over, or " + kElsewhere);
}

// ---- progress of the run ----

std::int64_t limit_of(std::int64_t max_steps) {
  return max_steps == 0 ? std::numeric_limits<std::int64_t>::max() : max_steps;
}

// Returns true if early stopping ended the run before its last step, but would not have ended it with the rule in the new
// config. trainer/state/evaluation_rules.cpp defines the names of the values in the manifest.
bool would_wait_longer(const Json& manifest, const EarlyStoppingConfig& rule) {
  const Json step = manifest.value("step", Json()), total = manifest.value("total_steps", Json());
  if (!step.is_number_integer() || !total.is_number_integer() || step >= total) return false;
  const Json values = manifest.value("values", Json::object());
  if (rule.patience == 0 || !values.is_object()) return true;
  const auto bad = values.find("early_stopping." + rule.metric + ".bad_evaluations");
  if (bad == values.end() || !bad->is_string()) return true;
  return std::strtod(bad->get_ref<const std::string&>().c_str(), nullptr) < static_cast<double>(rule.patience);
}

// Returns the manifest of a checkpoint. The result is not an object if the file is missing, not regular, or not valid JSON.
Json read_manifest_of(const fs::path& checkpoint) {
  const fs::path file = checkpoint / "manifest.json";
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return {};
  std::ifstream in(file, std::ios::binary);
  return Json::parse(in, nullptr, /*allow_exceptions=*/false);
}

// Describes damage that is visible without reading the files: a missing file, or a wrong size. The result is empty if no damage
// is visible.
std::string visible_damage(const fs::path& checkpoint, const Json& manifest) {
  if (!manifest.is_object()) return (checkpoint / "manifest.json").string() + " cannot be read";
  const auto files = manifest.find("files");
  if (files == manifest.end() || !files->is_object()) return "";
  for (const auto& [name, facts] : files->items()) {
    if (!facts.is_object()) continue;
    const auto bytes = facts.find("bytes");
    std::error_code error;
    const std::uintmax_t found = fs::file_size(checkpoint / name, error);
    if (error) return (checkpoint / name).string() + ": " + error.message();
    if (bytes != facts.end() && bytes->is_number_unsigned() && bytes->get<std::uintmax_t>() != found) {
      return (checkpoint / name).string() + " has " + std::to_string(found) + " bytes, but its manifest lists " + bytes->dump();
    }
  }
  return "";
}

// Sets latest_step and finished from the newest checkpoint without visible damage. This function does not verify the bytes,
// because the trainer verifies a checkpoint before it uses it, and reports the checkpoints that it skips. But if the run is
// finished, no trainer runs. In this case, this function reports the damage to a newer checkpoint.
void read_latest(RunState& state, const TrainConfig& config) {
  Json manifest;
  std::string damage, taken;
  for (const fs::path& folder : published_checkpoints(state.layout)) {
    manifest = read_manifest_of(folder);
    const std::string problem = visible_damage(folder, manifest);
    taken = folder.string();
    if (problem.empty()) break;
    manifest = {};
    if (damage.empty()) damage = problem;
  }
  const auto integer = [&](const char* name) -> std::optional<std::int64_t> {
    const auto found = manifest.find(name);
    if (found == manifest.end() || !found->is_number_integer()) return std::nullopt;
    return found->get<std::int64_t>();
  };
  if (!manifest.is_object()) return;
  state.latest_step = integer("step");
  const auto finished_flag = manifest.find("finished");
  const auto epochs = integer("config_epochs"), max_steps = integer("config_max_steps");
  if (finished_flag == manifest.end() || !finished_flag->is_boolean() || !epochs || !max_steps) return;
  // "finished" in the manifest refers to the limits that the config had when the checkpoint was written. With larger limits the
  // run continues.
  const bool enlarged = config.epochs > *epochs || limit_of(config.max_steps) > limit_of(*max_steps);
  state.finished =
      state.latest_step && finished_flag->get<bool>() && !enlarged && !would_wait_longer(manifest, config.early_stopping);
  if (!state.finished || damage.empty()) return;
  state.notes +=
      (state.notes.empty() ? "" : "\n") + ("the newest checkpoint is damaged: " + damage + "; " + taken) + " is used instead";
}

// Returns true if no training in this directory has reached its first step, usually because of a wrong path in the config. In
// this case, no result depends on the old config. run.json is written when training starts, so a directory with run.json
// counts as trained. Even if it has no checkpoint, nodes may have copies of checkpoints.
bool is_untrained(const RunLayout& layout, const std::vector<std::string>& names) {
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == "config.json" || (name != "run.json" && may_precede_config(name)) || is_empty_folder(layout.root / name);
  });
}

// Reads the state of the run, and checks whether this config may continue it.
void inspect_existing(RunState& state, const std::vector<std::string>& names, const TrainConfig& config) {
  refuse_lost_config(state.layout, names);
  require_checkpoint_folder(state.layout);
  require_regular_file(state.layout.config());
  state.resumed = has(names, "config.json");
  if (!state.resumed || is_untrained(state.layout, names)) return;
  state.notes = compare_with(read_old_config(state.layout, config.task), config, state.layout);
  read_latest(state, config);
}

}  // namespace

fs::path RunLayout::checkpoint(std::int64_t step) const {
  return checkpoints() / numbered("step-%09lld", step);
}

RunState open_run_directory(const fs::path& root, const TrainConfig& config, FreshStart fresh) {
  RunState state{.layout = {tidy(root)}, .latest_step = {}, .renamed_to = {}, .notes = {}};
  const RunLayout& layout = state.layout;
  refuse_local_copies_inside(layout.root, config);
  make_directory(layout.root);
  refuse_foreign(layout, names_in(layout.root));
  Descriptor lock(take_run_lock(layout.root));

  // The directory is locked now, so its content is read again. If no training step has ever run in it, --fresh renames
  // nothing.
  if (fresh == FreshStart::kRename && !is_untrained(layout, names_in(layout.root))) {
    // If the run directory is a link, the link stays. Its target folder is renamed, and created again.
    const fs::path directory = fs::is_symlink(layout.root) ? fs::canonical(layout.root) : layout.root;
    state.renamed_to = set_aside(directory).string();
    make_directory(directory);
    lock = Descriptor(take_run_lock(layout.root));
  }
  inspect_existing(state, names_in(layout.root), config);
  write_config(layout, config);
  state.lock_fd = lock.release();
  return state;
}

RunState examine_run_directory(const fs::path& root, const TrainConfig& config, FreshStart fresh) {
  RunState state{.layout = {tidy(root)}, .latest_step = {}, .renamed_to = {}, .notes = {}};
  refuse_local_copies_inside(state.layout.root, config);
  if (!require_folder(state.layout.root)) return state;
  const std::vector<std::string> names = names_in(state.layout.root);
  refuse_foreign(state.layout, names);
  refuse_held_run(state.layout.root);
  if (fresh == FreshStart::kNo) inspect_existing(state, names, config);
  return state;
}

}  // namespace ddprun
