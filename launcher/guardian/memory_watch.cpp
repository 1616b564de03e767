// Implementation of memory_watch.hpp: reads the files of cgroup v1 and v2, /proc/vmstat, and the kernel log.
#include "launcher/guardian/memory_watch.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "common/system/descriptor.hpp"
#include "launcher/machine/kernel_file.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// Returns the value of `name` in a text with lines such as "name value" or "name: value kB"; -1 if there is none.
std::int64_t value_of(const std::string& text, std::string_view name) {
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    const std::size_t value = text.find_first_not_of(": \t", at + name.size());
    if (value == std::string::npos || text[value] < '0' || text[value] > '9') continue;
    return std::strtoll(text.c_str() + value, nullptr, 10);
  }
  return -1;
}

std::int64_t value_in(const fs::path& file, std::string_view name) {
  return value_of(read_kernel_file(file.c_str()).value_or(""), name);
}

// Returns -1 if the cgroup has no memory limit. The file then contains "max" (cgroup v2) or a number near the largest integer
// (cgroup v1).
std::int64_t number_in(const fs::path& file) {
  const std::string text = read_kernel_file(file.c_str()).value_or("");
  std::int64_t number = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec != std::errc() || number >= std::int64_t{1} << 60 ? -1 : number;
}

void find_smallest_limit(const CgroupFolder& tree, fs::path folder, CgroupVersion version, MemoryEvidence& evidence) {
  const bool v1 = version == CgroupVersion::kV1;
  for (;; folder = folder.parent_path()) {
    const std::int64_t limit = number_in(folder / (v1 ? "memory.limit_in_bytes" : "memory.max"));
    if (limit >= 0 && (evidence.limit < 0 || limit < evidence.limit)) {
      evidence.limit = limit;
      evidence.limit_usage = number_in(folder / (v1 ? "memory.usage_in_bytes" : "memory.current"));
      evidence.limit_peak = number_in(folder / (v1 ? "memory.max_usage_in_bytes" : "memory.peak"));
    }
    if (folder == tree.root || !folder.has_relative_path()) return;
  }
}

std::int64_t added(std::int64_t before, std::int64_t now) {
  return before < 0 || now < 0 ? -1 : now - before;
}

}  // namespace

std::int64_t oom_kills_in(const fs::path& folder, CgroupVersion version) {
  return value_in(folder / (version == CgroupVersion::kV1 ? "memory.oom_control" : "memory.events"), "oom_kill ");
}

MemoryWatch::MemoryWatch(CgroupFolders folders, fs::path proc) : folders_(std::move(folders)), proc_(std::move(proc)) {}

const std::optional<CgroupFolder>& MemoryWatch::tree() const {
  return folders_.memory ? folders_.memory : folders_.unified;
}

MemoryWatch::Counts MemoryWatch::count() const {
  Counts counts;
  // The counter of the root cgroup is not used: it counts the OOM kills of the whole machine.
  if (tree() && !tree()->is_root()) counts.job = oom_kills_in(tree()->folder, version());
  counts.machine = value_in(proc_ / "vmstat", "oom_kill ");
  return counts;
}

void MemoryWatch::begin() {
  before_ = count();
}

MemoryEvidence MemoryWatch::take(const ExitStatus& status, const WorkerCgroup& cgroup) const {
  MemoryEvidence evidence;
  if (tree() && !cgroup.folder.empty()) {
    evidence.worker_kills = added(cgroup.kills_before, oom_kills_in(cgroup.folder, version()));
  }
  if (!status.by_sigkill() && evidence.worker_kills <= 0) return evidence;
  evidence.taken = 1;
  const Counts now = count();
  evidence.job_kills = added(before_.job, now.job);
  evidence.machine_kills = added(before_.machine, now.machine);
  if (tree()) find_smallest_limit(*tree(), cgroup.folder.empty() ? tree()->folder : cgroup.folder, version(), evidence);
  constexpr std::int64_t kKib = 1024;
  const std::string memory = read_kernel_file((proc_ / "meminfo").c_str()).value_or("");
  if (const std::int64_t kib = value_of(memory, "MemAvailable"); kib >= 0) evidence.available = kib * kKib;
  if (const std::int64_t kib = value_of(memory, "MemTotal"); kib >= 0) evidence.total = kib * kKib;
  return evidence;
}

// Reading the kernel log is slow. So the log is read only if the kernel has killed some process and the counters do not show
// which one.
MemoryEvidence MemoryWatch::evidence_of(const EndedWorker& worker, const WorkerCgroup& cgroup) const {
  MemoryEvidence evidence = take(worker.status, cgroup);
  evidence.worker_peak = worker.peak_bytes;
  const bool check_kernel_log = evidence.machine_kills != 0 && evidence.worker_kills <= 0;
  if (worker.status.signal == SIGKILL && check_kernel_log && kernel_log_names(worker.pid, worker.started_us)) {
    evidence.in_kernel_log = 1;
  }
  return evidence;
}

bool names_oom_victim(const std::string& record, pid_t pid, std::int64_t since_us) {
  const std::size_t semicolon = record.find(';');
  const std::string needle = "Killed process " + std::to_string(pid) + " (";
  if (semicolon == std::string::npos || record.find(needle, semicolon) == std::string::npos) return false;
  const std::size_t first = record.find(',');
  const std::size_t second = first == std::string::npos ? first : record.find(',', first + 1);
  if (second == std::string::npos || second > semicolon) return false;
  return std::strtoll(record.c_str() + second + 1, nullptr, 10) >= since_us;
}

// Each read() returns one record. EPIPE means that unread records were overwritten; the next read() continues with newer ones.
bool kernel_log_names(pid_t pid, std::int64_t since_us) {
  const Descriptor log(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  bool found = false;
  std::array<char, 8192> record{};
  while (!found) {
    const ssize_t n = ::read(log.get(), record.data(), record.size());
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (n <= 0) break;
    found = names_oom_victim(std::string(record.data(), static_cast<std::size_t>(n)), pid, since_us);
  }
  return found;
}

}  // namespace ddprun
