// Opens a run directory in this order: checks that it is a run directory (before anything is written into it), takes its lock,
// and compares the config. Only then it writes config.json. See run_directory.hpp.
#include "common/run_directory/run_directory.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/checkpoint_list.hpp"
#include "common/run_directory/run_lock.hpp"
#include "common/system/atomic_file.hpp"

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

// Absolute, without a slash at the end, so that a number can be appended.
fs::path tidy(const fs::path& root) {
  fs::path path = fs::absolute(root).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// ---- is it a run directory? ----

// Names that may exist before config.json does: files of a run that was killed at its start, a token, logs of scripts, and
// files of workers on a node that has never led the job.
bool may_precede_config(const std::string& name) {
  return name == "lock" || name == "token" || name == "logs" || name == "report.json" || name == "run.json" ||
         name == "worker.json" || name.starts_with(".worker.json.tmp-") ||
         name == "lost+found" ||  // a volume's own folder, if the run directory is a whole volume
         name.starts_with(".run.json.tmp-") || name.starts_with(".config.json.tmp-") || name.starts_with(".report.json.tmp-") ||
         name.starts_with(".token.tmp-") || name.starts_with("..token.tmp-");  // another node is creating it now
}

bool is_of_a_run(const std::string& name) {
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
  if (error) throw UsageError("can't read run directory " + folder.string() + ": " + error.message() + "; " + kElsewhere);
  std::sort(names.begin(), names.end());
  return names;
}

// Also true for a link to an empty folder, perhaps on a larger disk.
bool is_empty_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error) && fs::is_empty(path, error) && !error;
}

bool has(const std::vector<std::string>& names, const char* name) {
  return std::binary_search(names.begin(), names.end(), name);
}

// A user's own files must not be mixed with a run's, and --fresh must not rename them. A user may add notes to a run directory,
// and other programs have a config.json too: only config.json together with our lock makes a directory ours.
void refuse_foreign(const RunLayout& layout, const std::vector<std::string>& names) {
  if (has(names, "config.json") && has(names, "lock")) return;
  std::string foreign;
  int count = 0;
  for (const std::string& name : names) {
    if (!is_of_a_run(name) && ++count <= 3) foreign += (foreign.empty() ? "" : ", ") + name;
  }
  if (count == 0) return;
  if (count > 3) foreign += " and " + std::to_string(count - 3) + " more";
  throw UsageError(layout.root.string() + " is not a run directory, it holds other files (" + foreign + "): " + kElsewhere);
}

// Refuses results without a config: it is unknown whether this config continues them.
void refuse_lost_config(const RunLayout& layout, const std::vector<std::string>& names) {
  if (has(names, "config.json")) return;
  for (const std::string& name : names) {
    if (may_precede_config(name) || is_empty_folder(layout.root / name)) continue;
    throw UsageError(
        "run directory " + layout.root.string() + " has " + name +
        " but no config.json, so it can't be told whether this config continues it: use --fresh to keep it under " +
        "another name and begin anew, or " + kElsewhere);
  }
}

// ---- making and renaming ----

// Returns whether `root` exists. Throws UsageError if it is not a folder.
bool refuse_all_but_a_folder(const fs::path& root) {
  std::error_code error;
  const fs::file_status status = fs::status(root, error);
  if (fs::exists(status)) {
    if (fs::is_directory(status)) return true;
    throw UsageError("run directory " + root.string() + " is a file, expected a folder: " + kElsewhere);
  }
  if (!fs::is_symlink(fs::symlink_status(root, error))) return false;
  throw UsageError("run directory " + root.string() + " is a link to " + fs::read_symlink(root, error).string() +
                   ", which is not there: make that folder or " + kElsewhere);
}

void make_directory(const fs::path& root) {
  if (refuse_all_but_a_folder(root)) return;
  std::error_code error;
  fs::create_directories(root, error);
  if (error)
    throw UsageError("can't make run directory " + root.string() + ": " + error.message() + "; mend that or " + kElsewhere);
}

bool rename_without_replacing(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  // File systems without that flag, such as NFS: our lock keeps other starts from doing this at the same time.
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
  constexpr int kMostRenamed = 100'000;
  for (int number = 1; number <= kMostRenamed; ++number) {
    fs::path target = root.string() + "." + std::to_string(number);
    if (rename_without_replacing(root, target)) return target;
    if (errno != EEXIST && errno != ENOTEMPTY) {
      throw UsageError("can't rename " + root.string() + " to " + target.string() + " for --fresh: " + std::strerror(errno) +
                       "; " + kElsewhere);
    }
  }
  throw UsageError("can't rename " + root.string() + " for --fresh: all names up to ." + std::to_string(kMostRenamed) +
                   " are taken; " + kElsewhere);
}

// ---- is there another place for the copies? ----

// The nodes' copies are for the case that the run directory is lost, and --fresh renames everything inside it.
void refuse_local_copies_inside(const fs::path& root, const TrainConfig& config) {
  if (config.checkpoint.local_dir.empty()) return;
  std::error_code unknown;
  const fs::path local = fs::weakly_canonical(config.checkpoint.local_dir, unknown);
  const fs::path run = fs::weakly_canonical(root, unknown);
  if (std::mismatch(run.begin(), run.end(), local.begin(), local.end()).first != run.end()) return;
  throw UsageError("checkpoint.local_dir is " + config.checkpoint.local_dir + ", which is in the run directory " +
                   root.string() + ": expected a folder on each node's own disk (/checkpoint/local_dir)");
}

// ---- does the config fit? ----

// Reading a pipe would block.
void refuse_all_but_a_file(const fs::path& config) {
  std::error_code unknown;
  if (!fs::exists(config, unknown) || fs::is_regular_file(config, unknown)) return;
  throw UsageError(config.string() + " has to be the run's config, found something else than a file: move it away, or " +
                   kElsewhere);
}

// `task`: the keys of the worker program that will continue the run.
TrainConfig read_old_config(const RunLayout& layout, const TaskConfig& task) {
  try {
    return load_config(layout.config(), {}, nullptr, [&](const std::string&) { return task.defaults(); });
  } catch (const UsageError& error) {
    throw UsageError("run directory " + layout.root.string() +
                     " has a config.json that can't be read: use --fresh to keep it under another name and begin anew, or " +
                     kElsewhere + ". " + error.what());
  }
}

// Returns notes about harmless differences; throws UsageError for others.
std::string compare_with(const TrainConfig& old_config, const TrainConfig& config, const RunLayout& layout) {
  std::string notes, refusals;
  for (const ConfigDifference& difference : compare_configs(old_config, config)) {
    if (difference.may_change) {
      notes +=
          (notes.empty() ? "" : "\n") + difference.pointer + " changed from " + difference.before + " to " + difference.after;
    } else {
      refusals += "\n  " + difference.pointer + ": " + difference.before + " there, " + difference.after + " now";
    }
  }
  if (refusals.empty()) return notes;
  throw UsageError("run directory " + layout.root.string() + " belongs to another config:" + refusals +
                   "\nUse --fresh to keep it under another name and begin anew, or " + kElsewhere + ".");
}

void write_config(const RunLayout& layout, const TrainConfig& config) {
  const std::string text = to_json_text(config);
  std::ostringstream old_text;
  if (std::ifstream in(layout.config(), std::ios::binary); in) old_text << in.rdbuf();
  if (old_text.str() == text) return;
  try {
    write_file_atomically(layout.config(), text);
  } catch (const std::system_error& error) {
    throw UsageError(std::string(error.what()) + "; mend that or " + kElsewhere);
  }
}

// Otherwise a worker would fail only when it lists checkpoints, and would be restarted without result.
void refuse_file_for_checkpoints(const RunLayout& layout) {
  std::error_code error;
  const fs::file_status status = fs::status(layout.checkpoints(), error);
  const bool dangling = !fs::exists(status) && fs::is_symlink(fs::symlink_status(layout.checkpoints(), error));
  if (fs::is_directory(status) || (!fs::exists(status) && !dangling)) return;
  throw UsageError(layout.checkpoints().string() + " has to be the folder of the run's checkpoints, found " +
                   (dangling ? "a link to " + fs::read_symlink(layout.checkpoints(), error).string() + ", which is not there"
                    : fs::is_regular_file(status) ? "a file"
                                                  : "something else") +
                   ": move it away, use --fresh to keep the run directory under another name and begin anew, or " + kElsewhere);
}

// ---- what is done already? ----

std::int64_t limit_of(std::int64_t max_steps) {
  return max_steps == 0 ? std::numeric_limits<std::int64_t>::max() : max_steps;
}

// True if early stopping ended the run before its last step, and the new config would wait longer. The names of the values are
// those of the trainer (trainer/state/evaluation_rules.cpp).
bool would_wait_longer(const Json& manifest, const EarlyStoppingConfig& rule) {
  const Json step = manifest.value("step", Json()), total = manifest.value("total_steps", Json());
  if (!step.is_number_integer() || !total.is_number_integer() || step >= total) return false;
  const Json values = manifest.value("values", Json::object());
  if (rule.patience == 0 || !values.is_object()) return true;
  const auto bad = values.find("early_stopping." + rule.metric + ".bad_evaluations");
  if (bad == values.end() || !bad->is_string()) return true;
  return std::strtod(bad->get_ref<const std::string&>().c_str(), nullptr) < static_cast<double>(rule.patience);
}

// Returns an empty value for a pipe or a torn file.
Json read_manifest_of(const fs::path& checkpoint) {
  const fs::path file = checkpoint / "manifest.json";
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return {};
  std::ifstream in(file, std::ios::binary);
  return Json::parse(in, nullptr, /*allow_exceptions=*/false);
}

// Damage that is visible without reading the files; empty if there is none.
std::string visible_damage(const fs::path& checkpoint, const Json& manifest) {
  if (!manifest.is_object()) return (checkpoint / "manifest.json").string() + " can't be read";
  const auto files = manifest.find("files");
  if (files == manifest.end() || !files->is_object()) return "";
  for (const auto& [name, facts] : files->items()) {
    if (!facts.is_object()) continue;
    const auto bytes = facts.find("bytes");
    std::error_code error;
    const std::uintmax_t found = fs::file_size(checkpoint / name, error);
    if (error) return (checkpoint / name).string() + ": " + error.message();
    if (bytes != facts.end() && bytes->is_number_unsigned() && bytes->get<std::uintmax_t>() != found) {
      return (checkpoint / name).string() + " has " + std::to_string(found) + " bytes, its manifest says " + bytes->dump();
    }
  }
  return "";
}

// Does not verify all bytes: the trainer checks checkpoints before it uses them. The trainer also reports those that it skips.
// But it does not run if an older checkpoint shows that the run is finished.
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
  const auto said_finished = manifest.find("finished");
  const auto epochs = integer("config_epochs"), max_steps = integer("config_max_steps");
  if (said_finished == manifest.end() || !said_finished->is_boolean() || !epochs || !max_steps) return;
  // The run was finished under its limits at that time; with larger limits it continues.
  const bool enlarged = config.epochs > *epochs || limit_of(config.max_steps) > limit_of(*max_steps);
  state.finished =
      state.latest_step && said_finished->get<bool>() && !enlarged && !would_wait_longer(manifest, config.early_stopping);
  if (!state.finished || damage.empty()) return;
  state.notes +=
      (state.notes.empty() ? "" : "\n") + ("the newest checkpoint is bad: " + damage + "; " + taken) + " is taken in its place";
}

// The destructor closes the lock, unless opening has succeeded.
class LockGuard {
 public:
  explicit LockGuard(int fd) : fd_(fd) {}
  ~LockGuard() {
    if (fd_ >= 0) ::close(fd_);
  }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;
  void replace(int fd) {
    ::close(fd_);
    fd_ = fd;
  }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// A start that ended before the first step, usually because of a wrong path in the config, left nothing that another config
// could damage. Copies of checkpoints may be elsewhere, so run.json counts: it exists as soon as training begins.
bool nothing_was_trained(const RunLayout& layout, const std::vector<std::string>& names) {
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == "config.json" || (name != "run.json" && may_precede_config(name)) || is_empty_folder(layout.root / name);
  });
}

// Checks whether this config may continue the run in the directory.
void look_at_what_is_there(RunState& state, const std::vector<std::string>& names, const TrainConfig& config) {
  refuse_lost_config(state.layout, names);
  refuse_file_for_checkpoints(state.layout);
  refuse_all_but_a_file(state.layout.config());
  state.resumed = has(names, "config.json");
  if (!state.resumed || nothing_was_trained(state.layout, names)) return;
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
  LockGuard lock(take_run_lock(layout.root));

  // The directory is locked from here on, so its current content counts. Files of starts without any step stay, as without
  // --fresh.
  if (fresh == FreshStart::kRename && !nothing_was_trained(layout, names_in(layout.root))) {
    // A link stays: its target folder, perhaps on a larger disk, is renamed and created again.
    const fs::path directory = fs::is_symlink(layout.root) ? fs::canonical(layout.root) : layout.root;
    state.renamed_to = set_aside(directory).string();
    make_directory(directory);
    lock.replace(take_run_lock(layout.root));
  }
  look_at_what_is_there(state, names_in(layout.root), config);
  write_config(layout, config);
  state.lock_fd = lock.release();
  return state;
}

RunState examine_run_directory(const fs::path& root, const TrainConfig& config, FreshStart fresh) {
  RunState state{.layout = {tidy(root)}, .latest_step = {}, .renamed_to = {}, .notes = {}};
  refuse_local_copies_inside(state.layout.root, config);
  if (!refuse_all_but_a_folder(state.layout.root)) return state;
  const std::vector<std::string> names = names_in(state.layout.root);
  refuse_foreign(state.layout, names);
  refuse_held_run(state.layout.root);
  if (fresh == FreshStart::kNo) look_at_what_is_there(state, names, config);
  return state;
}

}  // namespace ddprun
