// Counts the CPUs that this process may use: the CPUs in its affinity mask, limited by the tightest cgroup quota between its
// cgroup and the root. In a container without a cgroup namespace, /proc shows a path that is not mounted. The root of the
// mount is then the container's own cgroup.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "launcher/machine/detect.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

int cpus_by_affinity() {
  // If the machine has more CPUs than cpu_set_t can hold, sched_getaffinity fails with EINVAL and needs a larger set.
  for (int cpus = 1024; cpus <= 65536; cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpus));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return std::max(1, count);
  }
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

std::string read_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

bool to_number(std::string_view text, long long& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc();
}

// Returns the smallest quota other than 0 in the folders from `group` up to `mount`. `read` returns the quota of one folder.
template <typename Read>
double tightest(const fs::path& mount, const std::string& group, Read read) {
  double best = 0;
  std::error_code ignored;
  fs::path folder = mount / fs::path(group).relative_path();
  if (!fs::exists(folder, ignored)) folder = mount;
  while (true) {
    const double quota = read(folder);
    if (quota > 0 && (best == 0 || quota < best)) best = quota;
    if (folder == mount || folder == folder.root_path()) return best;
    folder = folder.parent_path();
  }
}

double cpus_by_quota() {
  const fs::path root = "/sys/fs/cgroup";
  std::error_code ignored;
  double best = 0;
  const auto keep = [&best](double quota) {
    if (quota > 0 && (best == 0 || quota < best)) best = quota;
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) {
      const fs::path mount = fs::exists(root / "cgroup.controllers", ignored) ? root : root / "unified";
      keep(tightest(mount, group, [](const fs::path& folder) { return quota_of_cpu_max(read_line(folder / "cpu.max")); }));
      continue;
    }
    std::stringstream list(controllers);
    for (std::string controller; std::getline(list, controller, ',');) {
      if (controller != "cpu") continue;
      const fs::path mount = fs::exists(root / "cpu", ignored) ? root / "cpu" : root / controllers;
      keep(tightest(mount, group, [](const fs::path& folder) {
        return quota_of_cfs(read_line(folder / "cpu.cfs_quota_us"), read_line(folder / "cpu.cfs_period_us"));
      }));
    }
  }
  return best;
}

}  // namespace

double quota_of_cpu_max(std::string_view text) {
  const std::size_t space = text.find(' ');
  return space == std::string_view::npos ? 0 : quota_of_cfs(text.substr(0, space), text.substr(space + 1));
}

double quota_of_cfs(std::string_view quota_us, std::string_view period_us) {
  long long quota = 0, period = 0;
  if (!to_number(quota_us, quota) || !to_number(period_us, period) || quota <= 0 || period <= 0) return 0;
  return static_cast<double>(quota) / static_cast<double>(period);
}

int CpuCount::usable() const {
  if (quota <= 0) return affinity;
  return std::clamp(static_cast<int>(quota), 1, affinity);
}

CpuCount count_cpus() {
  return {cpus_by_affinity(), cpus_by_quota()};
}

}  // namespace ddprun
