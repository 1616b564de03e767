#include "launcher/doctor/observe_limits.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "common/base/split.hpp"
#include "launcher/machine/cgroup_folders.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/machine/kernel_file.hpp"

namespace ddprun::doctor {
namespace {

namespace fs = std::filesystem;

// Capability numbers of linux/capability.h. Each one is the position of a bit in CapEff.
constexpr int kCapIpcLock = 14, kCapSysPtrace = 19, kCapSysAdmin = 21, kCapSysResource = 24;

bool has_capability(int number) {
  constexpr std::string_view kField = "CapEff:\t";
  const std::string status = read_kernel_file("/proc/self/status").value_or("");
  const std::size_t at = status.find(kField);
  std::uint64_t bits = 0;
  if (at == std::string::npos) return false;
  const char* const text = status.data() + at + kField.size();
  std::from_chars(text, status.data() + status.size(), bits, 16);
  return (bits >> number & 1U) != 0;
}

std::optional<std::uint64_t> limit_of(__rlimit_resource resource, bool hard = false) {
  rlimit value{};
  if (::getrlimit(resource, &value) != 0) return std::nullopt;
  const rlim_t limit = hard ? value.rlim_max : value.rlim_cur;
  return limit == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(limit);
}

// Returns the number at the start of the file. Returns nullopt if the file is missing or sets no limit ("max", or a huge
// number in v1).
std::optional<std::uint64_t> number_in(const fs::path& file) {
  constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;
  const auto text = read_kernel_file(file.c_str());
  std::uint64_t number = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc()) return std::nullopt;
  return number >= kNoLimit ? std::nullopt : std::optional(number);
}

// Returns the cgroups of this process with that controller, from the innermost up to the root of each mounted tree (v1 and
// v2). In a container without a cgroup namespace, the path in /proc is not mounted. The mount's root is then the container's
// own cgroup.
std::vector<fs::path> cgroups_with(std::string_view controller) {
  const fs::path root = "/sys/fs/cgroup";
  std::vector<fs::path> folders;
  std::error_code ignored;
  const std::string groups = read_kernel_file("/proc/self/cgroup").value_or("");
  for (const std::string_view line : split(groups, '\n')) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view list = line.substr(first + 1, second - first - 1);
    const auto controllers = split(list, ',');
    const bool v2 = list.empty();
    if (!v2 && std::ranges::find(controllers, controller) == controllers.end()) continue;
    const fs::path own = v2 ? (fs::exists(root / "cgroup.controllers", ignored) ? root : root / "unified")
                            : (fs::exists(root / controller, ignored) ? root / controller : root / list);
    fs::path folder = own / fs::path(line.substr(second + 1)).relative_path();
    if (!fs::exists(folder, ignored)) folder = own;
    for (;; folder = folder.parent_path()) {
      folders.push_back(folder);
      if (folder == own || folder == folder.root_path()) break;
    }
  }
  return folders;
}

void keep_smaller(std::optional<std::uint64_t>& kept, const std::optional<std::uint64_t>& other) {
  if (other && (!kept || *other < *kept)) kept = other;
}

std::optional<std::uint64_t> processes_left() {
  std::optional<std::uint64_t> left;
  for (const fs::path& folder : cgroups_with("pids")) {
    const auto most = number_in(folder / "pids.max");
    if (!most) continue;
    keep_smaller(left, *most - std::min(*most, number_in(folder / "pids.current").value_or(0)));
  }
  return left;
}

std::optional<std::uint64_t> memory_limit() {
  std::optional<std::uint64_t> limit;
  for (const fs::path& folder : cgroups_with("memory")) {
    keep_smaller(limit, number_in(folder / "memory.max"));
    keep_smaller(limit, number_in(folder / "memory.limit_in_bytes"));
  }
  return limit;
}

}  // namespace

LimitFacts observe_limits() {
  std::error_code ignored;
  LimitFacts facts{.open_files = limit_of(RLIMIT_NOFILE),
                   .open_files_hard = limit_of(RLIMIT_NOFILE, true),
                   .locked_bytes = limit_of(RLIMIT_MEMLOCK),
                   .may_lock_all = has_capability(kCapIpcLock),
                   .has_infiniband = fs::exists("/dev/infiniband", ignored),
                   .processes_left = processes_left(),
                   .memory_bytes = memory_limit()};
  // The kernel does not enforce RLIMIT_NPROC for a process that has one of these capabilities.
  if (!has_capability(kCapSysResource) && !has_capability(kCapSysAdmin)) facts.user_processes = limit_of(RLIMIT_NPROC);
  return facts;
}

CpuFacts observe_cpus() {
  const CpuCount count = count_cpus();
  const char* threads = std::getenv("OMP_NUM_THREADS");
  return {.affinity = count.affinity,
          .quota = count.quota,
          .omp_threads = threads == nullptr || *threads == '\0' ? std::nullopt : std::optional<std::string>(threads)};
}

SharedMemoryFacts observe_shared_memory() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return {.exists = false};
  return {.is_writable = ::access("/dev/shm", W_OK) == 0 && (info.f_flag & ST_RDONLY) == 0,
          .total_bytes = static_cast<std::uint64_t>(info.f_blocks) * info.f_frsize,
          .free_bytes = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize};
}

ClockFacts observe_clock() {
  struct timex state {};  // with `modes` 0, adjtimex() only reads
  const int result = ::adjtimex(&state);
  return {.unix_seconds = ::time(nullptr), .is_synchronised = result < 0 || (state.status & STA_UNSYNC) == 0};
}

TraceFacts observe_tracing() {
  TraceFacts facts{.may_trace_all = has_capability(kCapSysPtrace)};
  if (const auto scope = number_in("/proc/sys/kernel/yama/ptrace_scope")) facts.yama_scope = static_cast<int>(*scope);
  return facts;
}

std::optional<std::uint64_t> observe_free_memory() {
  constexpr std::string_view kField = "MemAvailable:";
  const std::string memory = read_kernel_file("/proc/meminfo").value_or("");
  const std::size_t at = memory.find(kField);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t digits = memory.find_first_not_of(' ', at + kField.size());
  std::uint64_t kibibytes = 0;
  if (digits == std::string::npos) return std::nullopt;
  std::from_chars(memory.data() + digits, memory.data() + memory.size(), kibibytes);
  std::optional<std::uint64_t> bytes = kibibytes * 1024;
  keep_smaller(bytes, memory_limit());
  return bytes;
}

std::string describe_cgroups() {
  const CgroupFolders folders = cgroups_of_this_process();
  std::string text;
  const auto add = [&](const char* kind, const std::optional<CgroupFolder>& one) {
    if (!one) return;
    text += (text.empty() ? "" : ", ") + std::string(kind) + one->folder.string() +
            (::access(one->folder.c_str(), W_OK) == 0 ? " (writable)" : " (read-only)");
  };
  add("v2 ", folders.unified);
  add("v1 memory ", folders.memory);
  return text.empty() ? "none" : text;
}

}  // namespace ddprun::doctor
