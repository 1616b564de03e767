// Implementation of worker_cgroups.hpp: one folder ddprun-<pid> with a folder for each worker in it.
#include "launcher/guardian/worker_cgroups.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "launcher/guardian/guardian_sweep.hpp"
#include "launcher/guardian/memory_watch.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "ddprun-";

bool write_to(const fs::path& file, const std::string& text) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return written;
}

bool writable(const fs::path& folder) {
  return ::access(folder.c_str(), W_OK) == 0 && ::access((folder / "cgroup.procs").c_str(), W_OK) == 0;
}

// Of jobs that were killed together with their guardian. One that is still needed has processes or a guardian.
void remove_leftovers(const fs::path& parent) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(parent, error)) found.push_back(entry.path());
  for (const fs::path& top : found) {
    const std::string name = top.filename().string();
    pid_t pid = 0;
    if (!name.starts_with(kPrefix)) continue;
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data() + kPrefix.size(), end, pid).ptr != end || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
    std::vector<fs::path> below;
    for (const auto& entry : fs::directory_iterator(top, error)) {
      if (entry.is_directory(error)) below.push_back(entry.path());
    }
    for (const fs::path& folder : below) ::rmdir(folder.c_str());
    ::rmdir(top.c_str());
  }
}

}  // namespace

// Version 1's memory tree first: it is the one that counts. Version 2 without the memory controller still kills.
WorkerCgroups::WorkerCgroups(const CgroupFolders& folders) {
  if (folders.memory && writable(folders.memory->folder)) {
    parent_ = folders.memory->folder;
  } else if (folders.unified && writable(folders.unified->folder)) {
    parent_ = folders.unified->folder;
    v2_ = true;
  }
}

bool WorkerCgroups::make_top() {
  if (!top_.empty()) return true;
  if (parent_.empty()) return false;
  remove_leftovers(parent_);
  const fs::path top = parent_ / (std::string(kPrefix) + std::to_string(::getpid()));
  if (::mkdir(top.c_str(), 0755) != 0 && errno != EEXIST) {
    parent_.clear();  // never again
    return false;
  }
  top_ = top;
  // Given to the workers' folders where this one has been given it; refused otherwise, which is no loss.
  if (v2_) write_to(top_ / "cgroup.subtree_control", "+memory");
  return true;
}

bool WorkerCgroups::place(int worker, pid_t pid) {
  if (!make_top()) return false;
  const fs::path place = folder(worker);
  if (!made_[worker] && ::mkdir(place.c_str(), 0755) != 0 && errno != EEXIST) return false;
  made_[worker] = true;
  const std::int64_t before = oom_kills_in(place, v2_ ? CgroupVersion::kV2 : CgroupVersion::kV1);
  if (!write_to(place / "cgroup.procs", std::to_string(pid))) return false;
  placed_[worker] = before;
  // What it starts from now on is in it; what it had started before is fetched, until nothing new turns up.
  std::set<pid_t> moved;
  for (bool more = true; more;) {
    more = false;
    for (const pid_t child : guardian::descendants_of(pid)) {
      if (moved.insert(child).second && write_to(place / "cgroup.procs", std::to_string(child))) more = true;
    }
  }
  return true;
}

fs::path WorkerCgroups::folder_of(int worker) const {
  return placed_.contains(worker) ? folder(worker) : fs::path();
}

std::int64_t WorkerCgroups::kills_before(int worker) const {
  const auto found = placed_.find(worker);
  return found == placed_.end() ? -1 : found->second;
}

void WorkerCgroups::kill() const {
  if (top_.empty()) return;
  if (v2_ && write_to(top_ / "cgroup.kill", "1")) return;
  for (const auto& [worker, made] : made_) {
    std::ifstream processes(folder(worker) / "cgroup.procs");
    for (pid_t pid = 0; processes >> pid;) {
      if (pid > 0) ::kill(pid, SIGKILL);
    }
  }
}

void WorkerCgroups::remove() {
  if (top_.empty()) return;
  for (const auto& [worker, made] : made_) ::rmdir(folder(worker).c_str());
  ::rmdir(top_.c_str());
  made_.clear();
  placed_.clear();
  top_.clear();
}

}  // namespace ddprun
