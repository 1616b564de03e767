#include "launcher/machine/cgroup_folders.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/split.hpp"
#include "launcher/machine/kernel_file.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

bool holds(std::string_view comma_list, std::string_view word) {
  const auto words = split(comma_list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Decodes the escapes of mountinfo, which writes blanks and backslashes as \040 and so on.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

struct Mount {
  std::string root;   // the folder of the cgroup tree that is mounted at `point`
  std::string point;  // the mount point of the tree
};

// Searches `mountinfo`, whose lines have the form "36 35 0:31 /root /sys/fs/cgroup/memory rw,nosuid ... - cgroup cgroup
// rw,memory".
template <typename Fits>
std::optional<Mount> find_mount(std::string_view mountinfo, const Fits& fits) {
  for (const std::string_view line : split(mountinfo, '\n')) {
    const std::size_t dash = line.find(" - cgroup");  // skips most lines cheaply, since they describe other mounts
    if (dash == std::string_view::npos) continue;
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3 || !fits(after[0], after[2])) continue;
    return Mount{unescaped(before[3]), unescaped(before[4])};
  }
  return std::nullopt;
}

std::optional<CgroupFolder> folder_in(const std::optional<Mount>& mount, std::string_view path) {
  if (!mount || path.find("/..") != std::string_view::npos) return std::nullopt;
  std::string below(path);
  if (mount->root != "/") {
    if (!path.starts_with(mount->root)) return std::nullopt;
    below = path.substr(mount->root.size());
    if (!below.empty() && below[0] != '/') return std::nullopt;
  }
  const fs::path root = mount->point;
  while (below.starts_with('/')) below.erase(0, 1);
  return CgroupFolder{below.empty() ? root : root / below, root};
}

}  // namespace

CgroupFolders find_cgroups(std::string_view cgroup, std::string_view mountinfo) {
  CgroupFolders found;
  for (const std::string_view line : split(cgroup, '\n')) {  // "4:memory:/path", "0::/path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (holds(controllers, "memory")) {
      found.memory = folder_in(
          find_mount(mountinfo, [](std::string_view type,
                                   std::string_view options) { return type == "cgroup" && holds(options, "memory"); }),
          path);
    } else if (line.starts_with("0::")) {
      found.unified =
          folder_in(find_mount(mountinfo, [](std::string_view type, std::string_view) { return type == "cgroup2"; }), path);
    }
  }
  return found;
}

CgroupFolders cgroups_of_this_process() {
  return find_cgroups(read_kernel_file("/proc/self/cgroup").value_or(""),
                      read_kernel_file("/proc/self/mountinfo").value_or(""));
}

CgroupFolders cgroups_of(long pid) {
  return find_cgroups(read_kernel_file(("/proc/" + std::to_string(pid) + "/cgroup").c_str()).value_or(""),
                      read_kernel_file("/proc/self/mountinfo").value_or(""));
}

}  // namespace ddprun
