// Finds the mount that contains a path, in the text of /proc/self/mountinfo (proc_pid_mountinfo(5)). observe_folders.cpp needs
// the type and the options of the file system. statfs(2) reports the type as a number, and no options of NFS. The code is
// pure: no I/O, no clock.
#pragma once

#include <string>
#include <string_view>

namespace ddprun::doctor {

struct Mount {
  std::string point{};
  std::string type{};     // such as "ext4"; empty if no mount in the text contains the path
  std::string options{};  // options of the mount and of its file system, separated by commas

  bool has(std::string_view option) const;
};

// `path` must be absolute and without symbolic links.
Mount mount_of(std::string_view path, std::string_view mountinfo);

}  // namespace ddprun::doctor
