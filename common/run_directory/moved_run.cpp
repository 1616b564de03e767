#include "common/run_directory/moved_run.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <exception>
#include <system_error>
#include <vector>

#include "common/run_directory/checkpoint_list.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/run_directory/run_lock.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/descriptor.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// Returns the folder that now contains the locked file; empty if the file was removed or can't be accessed.
fs::path folder_of(int held_lock) {
  std::error_code error;
  const fs::path file = fs::read_symlink("/proc/self/fd/" + std::to_string(held_lock), error);
  return !error && is_same_file(held_lock, file) ? file.parent_path() : fs::path();
}

// Makes hard links to the files of a checkpoint in a temporary folder, and then renames the folder. So a partial copy is never
// visible. If a link fails, removes the folder.
void link_checkpoint(const fs::path& from, const fs::path& to) {
  std::error_code error;
  const fs::path half = to.parent_path() / (".tmp-" + to.filename().string() + "-" + std::to_string(::getpid()));
  fs::create_directories(half, error);
  for (fs::directory_iterator entry(from, error), end; !error && entry != end; entry.increment(error)) {
    fs::create_hard_link(entry->path(), half / entry->path().filename(), error);
    if (error) break;
  }
  if (!error) fs::rename(half, to, error);
  std::error_code ignored;
  if (error) fs::remove_all(half, ignored);
}

void link_newest_checkpoint(const RunLayout& from, const RunLayout& to) {
  if (from.root.empty() || !published_checkpoints(to).empty()) return;
  const std::vector<fs::path> checkpoints = published_checkpoints(from);
  if (checkpoints.empty()) return;
  std::error_code ignored;
  fs::create_hard_link(from.run(), to.run(), ignored);
  link_checkpoint(checkpoints.front(), to.checkpoints() / checkpoints.front().filename());
}

}  // namespace

DirectoryIdentity identity_of_directory(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return {};
  return {static_cast<std::uint64_t>(info.st_dev), static_cast<std::uint64_t>(info.st_ino)};
}

int remake_moved_run(const fs::path& root, DirectoryIdentity old, int held_lock, const std::string& config) {
  // If this is true, the old directory is still in its place, and only its lock file was removed. Probably `rm -r` is running.
  // A new file in the directory would make that command fail.
  if (old != DirectoryIdentity{} && identity_of_directory(root) == old) return -1;
  std::error_code error;
  fs::create_directories(root, error);
  if (error) return -1;
  const int lock = take_lock_of_moved_run(root, held_lock);
  if (lock < 0) return -1;
  try {
    const RunLayout to{root};
    link_newest_checkpoint({folder_of(held_lock)}, to);
    if (!config.empty() && !fs::exists(to.config())) write_file_atomically(to.config(), config);
  } catch (const std::exception&) {  // for example a full disk; workers that start later report the missing files
  }
  return lock;
}

}  // namespace ddprun
