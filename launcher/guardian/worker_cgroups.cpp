// Implementation of worker_cgroups.hpp. The guardian creates one folder ddprun-<pid>, which contains a folder for each worker.
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

#include "common/system/descriptor.hpp"
#include "launcher/leftovers/process_tree.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "ddprun-";

bool write_to(const fs::path& file, const std::string& text) {
  const Descriptor out(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  return ::write(out.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool writable(const fs::path& folder) {
  return ::access(folder.c_str(), W_OK) == 0 && ::access((folder / "cgroup.procs").c_str(), W_OK) == 0;
}

// Removes the folders of earlier jobs whose guardian was killed together with the agent. A folder with processes or with a
// running guardian stays.
void remove_leftovers(const fs::path& parent) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(parent, error)) found.push_back(entry.path());
  for (const fs::path& top : found) {
    const std::string name = top.filename().string();
    pid_t pid = 0;
    if (!name.starts_with(kPrefix)) continue;
    const char* const end = name.data() + name.size();
    const auto number = std::from_chars(name.data() + kPrefix.size(), end, pid);
    const bool ours = number.ec == std::errc{} && (number.ptr == end || *number.ptr == '-');
    if (!ours || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
    std::vector<fs::path> below;
    for (const auto& entry : fs::directory_iterator(top, error)) {
      if (entry.is_directory(error)) below.push_back(entry.path());
    }
    for (const fs::path& folder : below) ::rmdir(folder.c_str());
    ::rmdir(top.c_str());
  }
}

}  // namespace

// Prefers cgroup v1 with the memory controller, since the workers' memory limits are there. cgroup v2 without a memory
// controller is still useful for cgroup.kill.
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
  // If the folder exists, it belongs to another guardian with the same pid in another PID namespace, but in the same cgroup. So
  // further names are tried.
  const std::string name = std::string(kPrefix) + std::to_string(::getpid());
  constexpr int kMaxNames = 100;
  int made = -1;
  for (int n = 1; n <= kMaxNames && made != 0; ++n) {
    top_ = parent_ / (n == 1 ? name : name + "-" + std::to_string(n));
    made = ::mkdir(top_.c_str(), 0755);
    if (made != 0 && errno != EEXIST) break;
  }
  if (made != 0) {
    top_.clear();
    parent_.clear();  // prevents further attempts
    return false;
  }
  // Enables the memory controller in the workers' folders. If this folder does not have the controller, the write fails without
  // harm.
  if (v2_) write_to(top_ / "cgroup.subtree_control", "+memory");
  return true;
}

fs::path WorkerCgroups::folder_now(pid_t pid) const {
  const CgroupFolders folders = cgroups_of(pid);
  const auto& tree = v2_ ? folders.unified : folders.memory;
  return tree ? tree->folder : fs::path();
}

// Moves the process only if it is still in the cgroup where it was started. If it is in another cgroup, another program has
// moved it.
bool WorkerCgroups::move(pid_t pid, const fs::path& to) const {
  return folder_now(pid) == parent_ && write_to(to / "cgroup.procs", std::to_string(pid));
}

bool WorkerCgroups::place(int worker, pid_t pid) {
  if (!make_top()) return false;
  const CgroupVersion version = v2_ ? CgroupVersion::kV2 : CgroupVersion::kV1;
  if (const fs::path now = folder_now(pid); !now.empty() && now != parent_) {
    // For an exiting process, cgroup v1 shows the root cgroup, which is not the worker's cgroup.
    if (guardian::is_ending(pid)) return false;
    placed_[worker] = {now, oom_kills_in(now, version)};
    return false;
  }
  const fs::path place = folder(worker);
  if (!made_[worker] && ::mkdir(place.c_str(), 0755) != 0 && errno != EEXIST) return false;
  made_[worker] = true;
  const std::int64_t before = oom_kills_in(place, version);
  if (!move(pid, place)) return false;
  placed_[worker] = {place, before};
  // New children of the worker start in the worker's cgroup. Earlier children are moved, and the search repeats until all of
  // them are moved.
  std::set<pid_t> moved;
  for (bool more = true; more;) {
    more = false;
    for (const pid_t child : guardian::descendants_of(pid)) {
      if (moved.insert(child).second && move(child, place)) more = true;
    }
  }
  return true;
}

WorkerCgroup WorkerCgroups::cgroup_of(int worker) const {
  const auto found = placed_.find(worker);
  return found == placed_.end() ? WorkerCgroup() : found->second;
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
