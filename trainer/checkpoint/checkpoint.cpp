#include "trainer/checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/descriptor.hpp"
#include "trainer/checkpoint/checkpoint_folder.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Sets all members of the candidate except the path. `found_by` reads and checks the manifest at this path. It is
// judged_manifest or verified_manifest.
void fill_in(Candidate& candidate, Manifest (*found_by)(const fs::path&)) {
  candidate.problem.clear();
  candidate.content.clear();
  candidate.run.clear();
  try {
    const Manifest manifest = found_by(candidate.path);
    candidate.step = manifest.state.step;
    candidate.content = content_digest(manifest);
    candidate.run = manifest.state.run;
  } catch (const UsageError& problem) {
    candidate.problem = problem.what();
  }
}

// A temporary folder with a checkpoint that is being written. The writer holds a flock on the folder, and the kernel releases
// the lock when the writer exits. So the lock distinguishes the folder of a running writer from a leftover, even if process ids
// are reused. The destructor removes the folder unless it was published.
class TemporaryFolder {
 public:
  TemporaryFolder(const fs::path& checkpoints_dir, const std::string& name)
      : path_(checkpoints_dir / (std::string(kTemporaryPrefix) + name + "-" + std::to_string(::getpid()))) {
    fs::create_directory(path_);
    lock_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock_.get() >= 0) ::flock(lock_.get(), LOCK_EX | LOCK_NB);
  }
  ~TemporaryFolder() {
    std::error_code ignored;  // if the removal fails, the next writer removes the folder
    if (!published_) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }

  void publish_as(const fs::path& final_path) {
    fsync_directory(path_);
    if (::rename(path_.c_str(), final_path.c_str()) != 0) {
      fail("cannot rename " + path_.string() + " to " + final_path.string());
    }
    published_ = true;
  }

 private:
  fs::path path_;
  Descriptor lock_;
  bool published_ = false;
};

bool writer_lives(const fs::path& temporary) {
  const Descriptor folder(::open(temporary.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return folder.get() >= 0 && ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void add_note(std::string& notes, const std::string& note) {
  notes += (notes.empty() ? "" : "; ") + note;
}

// Removes temporary folders and links that no running writer has locked. Only one process writes to a run directory, so an
// unlocked folder is a leftover of a writer that has exited.
void remove_stale(const fs::path& checkpoints_dir, std::string& notes) {
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_dir)) {
    if (entry.path().filename().string().starts_with(kTemporaryPrefix) && !writer_lives(entry.path())) {
      stale.push_back(entry.path());
    }
  }
  for (const fs::path& path : stale) {
    const std::string reason = remove_folder(path);
    if (!reason.empty()) add_note(notes, "cannot remove " + path.string() + ": " + reason);
  }
}

// Returns the manifest of a checkpoint, or nullopt if it can't be read or its checksum is wrong.
std::optional<Manifest> readable_manifest(const fs::path& checkpoint) {
  try {
    return read_manifest(checkpoint);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Removes the checkpoints that the retention rules do not keep, oldest first. A checkpoint with an unreadable manifest is
// ignored: it is renamed and reported when the run starts the next time. A checkpoint of another run is ignored too, since it
// may be the last one of that run.
void retain(const fs::path& checkpoints_dir, const Retention& retention, const CheckpointState& saved, std::string& notes) {
  std::vector<RetainedCheckpoint> all;
  for (const Published& published : newest_first(checkpoints_dir)) {
    const auto found = readable_manifest(published.path);
    if (found && belongs_to_training(found->state, saved)) all.push_back({published.step, found->state.evaluation});
  }
  for (const std::int64_t step : steps_to_remove(all, retention, saved.step)) {
    const fs::path path = checkpoints_dir / folder_name(step);
    const std::string reason = remove_folder(path);
    if (!reason.empty()) add_note(notes, "cannot remove the old checkpoint " + path.string() + ": " + reason);
  }
}

// Throws before the first byte is written if the disk lacks space for the checkpoint. Without this check, the save would fill
// the disk before it fails, and in the meantime no other program could write to that disk.
void require_space(const fs::path& checkpoints_dir, const CheckpointState& state) {
  constexpr std::uintmax_t kOverheadBytes = 16 << 10;  // space for the file headers, the manifest and the folders
  std::uintmax_t needed = kOverheadBytes;
  for (const auto& [role, tensors] : tensors_by_role(state)) {
    for (const NamedTensor& entry : *tensors) needed += entry.tensor.nbytes();
  }
  std::error_code unknown;
  const fs::space_info space = fs::space(checkpoints_dir, unknown);
  if (unknown || space.capacity == 0 || space.available >= needed) return;  // some file systems don't report their free space
  errno = ENOSPC;
  fail("cannot write to " + checkpoints_dir.string() + ": " + std::to_string(space.available >> 10) +
       " KiB are free, but a checkpoint needs " + std::to_string(needed >> 10) + " KiB");
}

// Writes the tensors to `file`. Calls `progress` after each write of at most 64 MiB, and `at_half` after half of the file's
// bytes.
FileFacts write_tensors(const fs::path& file, const std::vector<NamedTensor>& tensors, const std::function<void()>& progress,
                        const std::function<void()>& at_half) {
  constexpr std::size_t kPieceBytes = 64 << 20;
  const SafetensorsPlan plan = plan_safetensors(tensors, {{"format", "pt"}});
  HashedFileWriter writer(file, plan.file_bytes());
  const auto write = [&](std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view piece = bytes.substr(0, kPieceBytes);
      writer.write(piece);
      progress();
      bytes.remove_prefix(piece.size());
    }
  };
  std::int64_t written = 0;
  const std::int64_t half = plan.file_bytes() / 2;
  stream_safetensors(plan, tensors, [&](std::string_view bytes) {
    const std::int64_t before = written;
    written += static_cast<std::int64_t>(bytes.size());
    if (at_half && before <= half && half < written) {
      write(bytes.substr(0, static_cast<std::size_t>(half - before)));
      at_half();
      bytes.remove_prefix(static_cast<std::size_t>(half - before));
    }
    write(bytes);
  });
  return writer.finish();
}

void write_text(const fs::path& file, const std::string& text) {
  HashedFileWriter writer(file);
  writer.write(text);
  writer.finish();
}

// Writes the checkpoint's files into a temporary folder and renames the folder to `path`. Returns the checkpoint's size in
// bytes.
std::int64_t publish(const fs::path& checkpoints_dir, const fs::path& path, const CheckpointState& state,
                     const StageObserver& reached) {
  require_space(checkpoints_dir, state);
  TemporaryFolder folder(checkpoints_dir, path.filename().string());
  Manifest manifest;
  const auto progress = [&] { reached("writing"); };
  std::int64_t bytes = 0;
  for (const auto& [role, tensors] : tensors_by_role(state)) {
    const bool first = tensors == &state.model;
    if (tensors->empty() && tensors == &state.average) continue;
    const std::string name = file_of_role(role);
    const auto at_half = [&] { reached("model-half"); };
    const FileFacts facts =
        write_tensors(folder.path() / name, *tensors, progress, first ? std::function<void()>(at_half) : nullptr);
    bytes += facts.bytes;
    manifest.files[name] = {.facts = facts, .role = role};
    reached((std::string(role) + "-written").c_str());
  }
  manifest.state = state;
  const std::string text = encode_manifest(manifest);
  write_text(folder.path() / kManifestFile, text);
  reached("manifest-written");
  folder.publish_as(path);
  fsync_directory(checkpoints_dir);
  reached("renamed");
  return bytes + static_cast<std::int64_t>(text.size());
}

// If this step of this run is already published, updates the manifest if needed, and returns the checkpoint's size in bytes.
// Otherwise returns nullopt. If the published checkpoint is damaged or belongs to another run, it is renamed first, so that its
// name is free.
std::optional<std::int64_t> reuse_published(const Published& published, const CheckpointState& state) {
  if (!fs::exists(fs::symlink_status(published.path))) return std::nullopt;
  Manifest manifest;
  try {
    manifest = verified_manifest(published.path);
  } catch (const UsageError& problem) {
    set_aside({.step = published.step, .path = published.path, .problem = problem.what(), .content = {}, .run = {}});
    return std::nullopt;
  }
  if (!manifest.state.run.empty() && manifest.state.run != state.run) {
    supersede(published.path);
    return std::nullopt;
  }
  // The manifest keeps the machine and world size of the process that wrote the tensors. The entries about the end of the run
  // are updated. Without this update, a finished run would evaluate and end again each time it is started. The evaluation is
  // added too, because it may have failed at the first save and succeeded now. A step without an evaluation could not become
  // the best one.
  const bool evaluated_since = state.evaluation && !manifest.state.evaluation;
  if (same_step_of_run(manifest.state, state) && (evaluated_since || !same_run_end(manifest.state, state))) {
    copy_run_end(manifest.state, state);
    write_file_atomically(published.path / kManifestFile, encode_manifest(manifest));
  }
  std::int64_t bytes = static_cast<std::int64_t>(fs::file_size(published.path / kManifestFile));
  for (const auto& [name, file] : manifest.files) bytes += file.facts.bytes;
  return bytes;
}

}  // namespace

SaveResult save_checkpoint(const fs::path& checkpoints_dir, const CheckpointState& state, const Retention& retention,
                           const StageObserver& at_stage) {
  const StageObserver reached = at_stage ? at_stage : [](const char*) {};
  reached("begun");
  SaveResult result;
  result.path = checkpoints_dir / folder_name(state.step);
  make_durable_folder(checkpoints_dir);
  remove_stale(checkpoints_dir, result.note);

  if (const auto bytes = reuse_published({state.step, result.path}, state)) {
    result.bytes = *bytes;
  } else {
    result.bytes = publish(checkpoints_dir, result.path, state, reached);
  }
  const fs::path latest = checkpoints_dir / kLatest;
  // `latest` is a folder if a user has copied the run with `cp -L`. That is harmless, since a resume does not use `latest`.
  if (fs::is_directory(fs::symlink_status(latest))) {
    add_note(result.note, latest.string() +
                              " is a folder; expected a symbolic link to the newest checkpoint. Remove the folder: " +
                              "the next save creates the link");
  } else {
    point_latest_to(checkpoints_dir, result.path.filename().string());
  }
  reached("latest-moved");
  retain(checkpoints_dir, retention, state, result.note);
  return result;
}

std::vector<Candidate> list_checkpoints(const fs::path& checkpoints_dir) {
  std::vector<Candidate> candidates;
  for (Published& published : newest_first(checkpoints_dir)) {
    candidates.push_back({.step = published.step, .path = std::move(published.path), .problem = {}, .content = {}, .run = {}});
  }
  return candidates;
}

void judge_checkpoint(Candidate& candidate) {
  fill_in(candidate, judged_manifest);
}

void verify_checkpoint(Candidate& candidate) {
  fill_in(candidate, verified_manifest);
}

std::vector<Candidate> inspect_checkpoints(const fs::path& checkpoints_dir) {
  std::vector<Candidate> candidates = list_checkpoints(checkpoints_dir);
  for (Candidate& candidate : candidates) verify_checkpoint(candidate);
  return candidates;
}

fs::path set_aside(const Candidate& bad) {
  const fs::path checkpoints_dir = bad.path.parent_path();
  fs::path aside;
  for (int attempt = 1;; ++attempt) {
    aside = bad.path;
    aside += attempt == 1 ? ".bad" : ".bad-" + std::to_string(attempt);
    if (fs::exists(fs::symlink_status(aside))) continue;
    if (::rename(bad.path.c_str(), aside.c_str()) != 0) fail("cannot rename " + bad.path.string() + " to " + aside.string());
    break;
  }
  fsync_directory(checkpoints_dir);

  std::error_code no_link;
  if (fs::read_symlink(checkpoints_dir / kLatest, no_link).filename() != bad.path.filename()) return aside;
  const std::vector<Published> others = newest_first(checkpoints_dir);
  if (!others.empty()) {
    point_latest_to(checkpoints_dir, others.front().path.filename().string());
  } else {
    fs::remove(checkpoints_dir / kLatest);
    fsync_directory(checkpoints_dir);
  }
  return aside;
}

fs::path supersede(const fs::path& checkpoint) {
  fs::path target = checkpoint.string() + ".superseded";
  for (int n = 2; fs::exists(fs::symlink_status(target)); ++n)
    target = checkpoint.string() + ".superseded-" + std::to_string(n);
  fs::rename(checkpoint, target);
  // If `latest` pointed to the old name, the link is removed. Without the link, a resume works as before, and the next save
  // creates it again.
  const fs::path latest = checkpoint.parent_path() / kLatest;
  std::error_code none;
  if (fs::is_symlink(latest, none) && !fs::exists(latest, none)) fs::remove(latest, none);
  return target;
}

void repair_latest(const fs::path& checkpoint) {
  const fs::path checkpoints_dir = checkpoint.parent_path();
  std::error_code no_link;
  if (fs::read_symlink(checkpoints_dir / kLatest, no_link) == checkpoint.filename()) return;
  point_latest_to(checkpoints_dir, checkpoint.filename().string());
}

CheckpointState load_weights(const fs::path& link_or_path) {
  std::error_code not_there;                                     // judged_manifest() reports a missing path
  const fs::path real = fs::canonical(link_or_path, not_there);  // resolves the link checkpoints/latest
  const fs::path& path = not_there ? link_or_path : real;
  const Manifest manifest = judged_manifest(path);
  CheckpointState state = manifest.state;
  state.model = load_role(path, manifest, kModelRole);
  verify_role(path, manifest, kOptimizerRole);
  std::map<std::string, at::Tensor> averages;
  for (NamedTensor& average : load_role(path, manifest, kAverageRole))
    averages.emplace(average.name, std::move(average.tensor));
  for (NamedTensor& entry : state.model) {
    if (const auto found = averages.find(entry.name); found != averages.end()) entry.tensor = found->second;
  }
  return state;
}

CheckpointState load_checkpoint(const fs::path& path) {
  const Manifest manifest = judged_manifest(path);
  CheckpointState state = manifest.state;
  for (const auto& [role, tensors] : tensors_by_role(state)) *tensors = load_role(path, manifest, role);
  return state;
}

}  // namespace ddprun::trainer
