// Finds the cgroup folders of a process, from the texts of /proc/PID/cgroup and /proc/self/mountinfo. The guardian does so at
// its start for itself, and for each worker that it is about to move (worker_cgroups.hpp, memory_watch.hpp).
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace ddprun {

struct CgroupFolder {
  std::filesystem::path folder;  // the folder of this process
  std::filesystem::path root;    // where the tree is mounted
  bool is_root() const { return folder == root; }
};

struct CgroupFolders {
  std::optional<CgroupFolder> memory;   // version 1: the memory controller's tree
  std::optional<CgroupFolder> unified;  // version 2
};

// A tree has no folder if it is not mounted here. The same holds if its mount belongs to another namespace and does not contain
// this process.
CgroupFolders find_cgroups(std::string_view cgroup, std::string_view mountinfo);
CgroupFolders cgroups_of_this_process();
// The folders of another process, as far as they are visible from here. Empty if that process has ended.
CgroupFolders cgroups_of(long pid);

}  // namespace ddprun
