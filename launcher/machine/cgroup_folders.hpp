// Finds the cgroup folders of a process. They are read from /proc/PID/cgroup and /proc/self/mountinfo. The guardian finds its
// own folders at its start, and the folders of each worker that it is about to move (worker_cgroups.hpp, memory_watch.hpp).
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace ddprun {

struct CgroupFolder {
  std::filesystem::path folder;  // the folder of the process
  std::filesystem::path root;    // the mount point of the cgroup tree
  bool is_root() const { return folder == root; }
};

struct CgroupFolders {
  std::optional<CgroupFolder> memory;   // cgroup v1: the memory controller's tree
  std::optional<CgroupFolder> unified;  // cgroup v2: the unified tree
};

// A member is nullopt if its cgroup tree is not mounted in this mount namespace, or if the mounted part does not contain the
// process.
CgroupFolders find_cgroups(std::string_view cgroup, std::string_view mountinfo);
CgroupFolders cgroups_of_this_process();
// Returns the cgroup folders of process `pid`, as far as this process can access them. The result is empty if process `pid` has
// ended.
CgroupFolders cgroups_of(long pid);

}  // namespace ddprun
