// Where in the cgroup trees a process is, from the texts of /proc/PID/cgroup and /proc/self/mountinfo. The guardian asks at its
// start for itself, and for each worker that it is about to move (worker_cgroups.hpp, memory_watch.hpp).
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace ddprun {

struct CgroupFolder {
  std::filesystem::path folder;  // of this process
  std::filesystem::path root;    // where the tree is mounted
  bool is_root() const { return folder == root; }
};

struct CgroupFolders {
  std::optional<CgroupFolder> memory;   // version 1, the memory controller's tree
  std::optional<CgroupFolder> unified;  // version 2
};

// Nothing for a tree that is not mounted here, or whose mount does not show this process (another namespace's).
CgroupFolders find_cgroups(std::string_view cgroup, std::string_view mountinfo);
CgroupFolders cgroups_of_this_process();
// Of another one, as far as this process sees it; nothing when it is gone.
CgroupFolders cgroups_of(long pid);

}  // namespace ddprun
