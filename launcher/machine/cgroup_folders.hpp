// Where in the cgroup trees this process is, from the texts of /proc/self/cgroup and /proc/self/mountinfo. Pure; the guardian
// asks once at its start (worker_cgroups.hpp, memory_watch.hpp).
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

}  // namespace ddprun
