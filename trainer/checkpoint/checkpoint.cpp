#include "trainer/checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr const char* kLatest = "latest";

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::string folder_name(std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%09lld", static_cast<long long>(step));
  return name;
}

// The step of a checkpoint's folder, by its name; nothing for any other name.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (error != std::errc{} || rest != end || step < 0 || folder_name(step) != name) return std::nullopt;
  return step;
}

struct Published {
  std::int64_t step = 0;
  fs::path path;
};

std::vector<Published> newest_first(const fs::path& checkpoints_dir) {
  std::vector<Published> found;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints_dir, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto step = step_of(entry->path().filename().string())) found.push_back({*step, entry->path()});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw std::system_error(error, "cannot list " + checkpoints_dir.string());
  }
  std::sort(found.begin(), found.end(), [](const Published& a, const Published& b) { return a.step > b.step; });
  return found;
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kManifestFile;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) throw UsageError(file.string() + " is missing");
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad()) throw UsageError(file.string() + " cannot be read");
  try {
    Manifest manifest = decode_manifest(text);
    if (folder_name(manifest.state.step) != checkpoint.filename()) {
      throw UsageError("is of step " + std::to_string(manifest.state.step) + ", its folder is named otherwise");
    }
    return manifest;
  } catch (const UsageError& problem) {
    throw UsageError(file.string() + " " + problem.what());
  }
}

// The manifest, after every length and checksum was found to hold. Throws UsageError naming the file.
Manifest verify(const fs::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  for (const auto& [name, expected] : manifest.files) {
    const fs::path file = checkpoint / name;
    std::error_code error;
    const fs::file_status status = fs::status(file, error);
    if (!fs::exists(status)) throw UsageError(file.string() + " is missing");
    if (!fs::is_regular_file(status)) throw UsageError(file.string() + " is not a regular file");
    const auto bytes = static_cast<std::int64_t>(fs::file_size(file, error));
    if (!error && bytes != expected.bytes) {
      throw UsageError(file.string() + " has " + std::to_string(bytes) + " bytes, its manifest says " +
                       std::to_string(expected.bytes));
    }
    FileFacts found;
    try {
      found = facts_of_file(file);
    } catch (const std::system_error& unreadable) {
      throw UsageError(unreadable.what());
    }
    if (found != expected) {
      throw UsageError(file.string() + " has checksum " + found.xxh3_128 + ", its manifest says " + expected.xxh3_128);
    }
  }
  return manifest;
}

// Replaced by rename, so there is no moment without `latest`.
void point_latest_to(const fs::path& checkpoints_dir, const std::string& name) {
  const fs::path temporary = checkpoints_dir / (".tmp-latest-" + std::to_string(::getpid()));
  const fs::path latest = checkpoints_dir / kLatest;
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) fail("cannot remove " + temporary.string());
  if (::symlink(name.c_str(), temporary.c_str()) != 0) fail("cannot make the link " + temporary.string());
  if (::rename(temporary.c_str(), latest.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    errno = reason;
    fail("cannot replace the link " + latest.string());
  }
  fsync_directory(checkpoints_dir);
}

// A folder that only its writer sees. It holds a flock for as long as it lives, which tells a dead writer's folder from a live
// one's also where process ids are reused; it is removed unless it was published.
class TemporaryFolder {
 public:
  TemporaryFolder(const fs::path& checkpoints_dir, const std::string& name)
      : path_(checkpoints_dir / (std::string(kTemporaryPrefix) + name + "-" + std::to_string(::getpid()))) {
    fs::create_directory(path_);
    fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd_ >= 0) ::flock(fd_, LOCK_EX | LOCK_NB);
  }
  ~TemporaryFolder() {
    std::error_code ignored;  // the next writer removes what stays
    if (!published_) fs::remove_all(path_, ignored);
    if (fd_ >= 0) ::close(fd_);
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
  int fd_ = -1;
  bool published_ = false;
};

bool writer_is_alive(const fs::path& temporary) {
  const int fd = ::open(temporary.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return locked;
}

void add_note(std::string& notes, const std::string& note) {
  notes += (notes.empty() ? "" : "; ") + note;
}

// Only dead writers' folders and links: one writer a run directory, so whoever holds no lock is gone.
void remove_stale(const fs::path& checkpoints_dir, std::string& notes) {
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_dir)) {
    if (entry.path().filename().string().starts_with(kTemporaryPrefix) && !writer_is_alive(entry.path())) {
      stale.push_back(entry.path());
    }
  }
  for (const fs::path& path : stale) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) add_note(notes, "cannot remove " + path.string() + ": " + error.message());
  }
}

// Beyond the newest `keep`, oldest first. Each is renamed before it is taken apart, so that a kill in between leaves no folder
// that looks like a checkpoint and is none.
void retain(const fs::path& checkpoints_dir, std::int64_t keep, const fs::path& just_written, std::string& notes) {
  std::vector<Published> all = newest_first(checkpoints_dir);
  auto excess = static_cast<std::int64_t>(all.size()) - std::max<std::int64_t>(keep, 1);
  for (auto oldest = all.rbegin(); oldest != all.rend() && excess > 0; ++oldest, --excess) {
    if (oldest->path == just_written) continue;
    const fs::path doomed =
        checkpoints_dir / (".tmp-remove-" + oldest->path.filename().string() + "-" + std::to_string(::getpid()));
    std::error_code error;
    fs::rename(oldest->path, doomed, error);
    if (!error) fs::remove_all(doomed, error);
    if (error) add_note(notes, "cannot remove the old checkpoint " + oldest->path.string() + ": " + error.message());
  }
}

FileFacts write_tensors(const fs::path& file, const std::vector<NamedTensor>& tensors, const std::function<void()>& at_half) {
  const SafetensorsPlan plan = plan_safetensors(tensors, {{"format", "pt"}});
  HashedFileWriter writer(file);
  std::int64_t written = 0;
  const std::int64_t half = plan.file_bytes() / 2;
  stream_safetensors(plan, tensors, [&](std::string_view bytes) {
    const std::int64_t before = written;
    written += static_cast<std::int64_t>(bytes.size());
    if (at_half && before <= half && half < written) {
      writer.write(bytes.substr(0, static_cast<std::size_t>(half - before)));
      at_half();
      bytes.remove_prefix(static_cast<std::size_t>(half - before));
    }
    writer.write(bytes);
  });
  return writer.finish();
}

void write_text(const fs::path& file, const std::string& text) {
  HashedFileWriter writer(file);
  writer.write(text);
  writer.finish();
}

// Writes the three files into a temporary folder and publishes it.
std::int64_t publish(const fs::path& checkpoints_dir, const fs::path& path, const CheckpointState& state,
                     const StageObserver& reached) {
  TemporaryFolder folder(checkpoints_dir, path.filename().string());
  Manifest manifest;
  manifest.files[kModelFile] = write_tensors(folder.path() / kModelFile, state.model, [&] { reached("model-half"); });
  reached("model-written");
  manifest.files[kOptimizerFile] = write_tensors(folder.path() / kOptimizerFile, state.optimizer, {});
  reached("optimizer-written");
  manifest.state = state;
  const std::string text = encode_manifest(manifest);
  write_text(folder.path() / kManifestFile, text);
  reached("manifest-written");
  folder.publish_as(path);
  fsync_directory(checkpoints_dir);
  reached("renamed");
  return manifest.files[kModelFile].bytes + manifest.files[kOptimizerFile].bytes + static_cast<std::int64_t>(text.size());
}

// The bytes of an already published checkpoint of this state, its manifest brought up to date; nothing when there is none, or
// one of another state or a bad one, which then is out of the way.
std::optional<std::int64_t> reuse_published(const Published& published, const CheckpointState& state) {
  if (!fs::exists(fs::symlink_status(published.path))) return std::nullopt;
  Manifest manifest;
  try {
    manifest = verify(published.path);
  } catch (const UsageError& problem) {
    set_aside({.step = published.step, .path = published.path, .problem = problem.what()});
    return std::nullopt;
  }
  // Of another training state, for example another world size: its tensors are right for what its manifest says, so both stay.
  if (same_training_state(manifest.state, state) && !same_end(manifest.state, state)) {
    manifest.state.finished = state.finished;
    manifest.state.total_steps = state.total_steps;
    manifest.state.config_epochs = state.config_epochs;
    manifest.state.config_max_steps = state.config_max_steps;
    write_file_atomically(published.path / kManifestFile, encode_manifest(manifest));
  }
  std::int64_t bytes = static_cast<std::int64_t>(fs::file_size(published.path / kManifestFile));
  for (const auto& [name, facts] : manifest.files) bytes += facts.bytes;
  return bytes;
}

}  // namespace

SaveResult save_checkpoint(const fs::path& checkpoints_dir, const CheckpointState& state, std::int64_t keep,
                           const StageObserver& at_stage) {
  const StageObserver reached = at_stage ? at_stage : [](const char*) {};
  SaveResult result;
  result.path = checkpoints_dir / folder_name(state.step);
  fs::create_directories(checkpoints_dir);
  remove_stale(checkpoints_dir, result.note);

  if (const auto bytes = reuse_published({state.step, result.path}, state)) {
    result.bytes = *bytes;
  } else {
    result.bytes = publish(checkpoints_dir, result.path, state, reached);
  }
  point_latest_to(checkpoints_dir, result.path.filename().string());
  reached("latest-moved");
  retain(checkpoints_dir, keep, result.path, result.note);
  return result;
}

std::vector<Candidate> inspect_checkpoints(const fs::path& checkpoints_dir) {
  std::vector<Candidate> candidates;
  for (const Published& published : newest_first(checkpoints_dir)) {
    Candidate candidate{.step = published.step, .path = published.path, .problem = {}};
    try {
      verify(published.path);
    } catch (const UsageError& problem) {
      candidate.problem = problem.what();
    }
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

fs::path set_aside(const Candidate& bad) {
  const fs::path checkpoints_dir = bad.path.parent_path();
  fs::path aside;
  for (int attempt = 1;; ++attempt) {
    aside = bad.path;
    aside += attempt == 1 ? ".bad" : ".bad-" + std::to_string(attempt);
    if (fs::exists(fs::symlink_status(aside))) continue;
    if (::rename(bad.path.c_str(), aside.c_str()) != 0) {
      fail("cannot rename " + bad.path.string() + " to " + aside.string());
    }
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

CheckpointState load_checkpoint(const fs::path& path) {
  CheckpointState state = verify(path).state;
  state.model = read_safetensors(path / kModelFile).tensors;
  state.optimizer = read_safetensors(path / kOptimizerFile).tensors;
  return state;
}

}  // namespace ddprun::trainer
