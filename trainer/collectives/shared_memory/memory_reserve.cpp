// Implementation of memory_reserve.hpp.
#include "trainer/collectives/shared_memory/memory_reserve.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/numbers.hpp"
#include "common/system/descriptor.hpp"

namespace ddprun::trainer::collectives {
namespace {

constexpr std::size_t kMaxTextBytes = 16 << 10;  // the kernel's files that are read here are shorter

// Returns the content of the file, or an empty text if it can't be read.
std::string text_of_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(kMaxTextBytes, '\0');
  std::size_t length = 0;
  while (file.get() >= 0 && length < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + length, text.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    length += static_cast<std::size_t>(count);
  }
  text.resize(length);
  return text;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  const std::string text = text_of_file(path);
  return exact_number<std::uint64_t>(std::string_view(text).substr(0, text.find('\n')));
}

void keep_tighter(std::optional<MemoryLimit>& tightest, std::string name, std::uint64_t available) {
  if (!tightest || available < tightest->available) tightest = MemoryLimit{std::move(name), available};
}

struct CgroupFiles {
  const char* mount;
  const char* limit;
  const char* used;
  const char* reclaimable;  // key in memory.stat for the page cache that the kernel can drop
};

// Applies the limits of the cgroup and of all cgroups above it.
void keep_tighter_cgroup(std::optional<MemoryLimit>& tightest, std::string path, const CgroupFiles& files) {
  while (true) {
    const std::string folder = files.mount + (path == "/" ? "" : path) + "/";
    const auto limit = number_in(folder + files.limit);
    const auto used = number_in(folder + files.used);
    if (limit && used) {
      const std::uint64_t reclaimable = bytes_after(text_of_file(folder + "memory.stat"), files.reclaimable).value_or(0);
      const std::uint64_t needed = *used - std::min(*used, reclaimable);
      keep_tighter(tightest, "the memory limit of the cgroup " + path, *limit - std::min(*limit, needed));
    }
    const std::size_t slash = path.rfind('/');
    if (path.size() <= 1 || slash == std::string::npos) return;
    path.resize(slash == 0 ? 1 : slash);
  }
}

// Returns the number in the first line that starts with the key and a space.
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (!line.starts_with(' ')) continue;
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    return exact_number<std::uint64_t>(line.substr(0, line.find(' ')));
  }
  return std::nullopt;
}

std::string mebibytes(std::uint64_t bytes) {
  return std::to_string(bytes >> 20);
}

}  // namespace

std::optional<std::uint64_t> kib_after(std::string_view text, std::string_view key) {
  const auto kib = number_after(text, key);
  return kib ? std::optional(*kib << 10) : std::nullopt;
}

std::optional<std::uint64_t> bytes_after(std::string_view text, std::string_view key) {
  return number_after(text, key);
}

std::optional<std::string> cgroup_path(std::string_view proc_self_cgroup, std::string_view controller) {
  while (!proc_self_cgroup.empty()) {
    const std::size_t end = std::min(proc_self_cgroup.find('\n'), proc_self_cgroup.size());
    const std::string_view line = proc_self_cgroup.substr(0, end);
    proc_self_cgroup.remove_prefix(std::min(end + 1, proc_self_cgroup.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    if (controllers.find("," + std::string(controller) + ",") == std::string::npos) continue;
    const std::string_view path = line.substr(second + 1);
    // A cgroup outside the cgroup namespace has a path with "..", which does not exist below the mount.
    return path.starts_with('/') && path.find("..") == std::string_view::npos ? std::string(path) : "/";
  }
  return std::nullopt;
}

std::optional<MemoryLimit> tightest_memory_limit() {
  std::optional<MemoryLimit> tightest;
  if (const auto bytes = kib_after(text_of_file("/proc/meminfo"), "MemAvailable:")) {
    keep_tighter(tightest, "the free memory of this machine", *bytes);
  }
  rlimit files{};
  if (::getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
    keep_tighter(tightest, "the limit of file sizes (ulimit -f)", files.rlim_cur);
  }
  const std::string cgroups = text_of_file("/proc/self/cgroup");
  if (const auto path = cgroup_path(cgroups, "")) {
    for (const char* const mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
      keep_tighter_cgroup(tightest, *path, {mount, "memory.max", "memory.current", "inactive_file"});
    }
  }
  if (const auto path = cgroup_path(cgroups, "memory")) {
    keep_tighter_cgroup(tightest, *path,
                        {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"});
  }
  return tightest;
}

std::optional<std::string> size_memory(int memfd, std::uint64_t bytes) {
  const std::string need = "the ranks of this machine need " + mebibytes(bytes) + " MiB of shared memory";
  const std::optional<MemoryLimit> limit = tightest_memory_limit();
  if (limit && bytes > limit->available) {
    return need + ", but " + limit->name + " leaves " + mebibytes(limit->available) +
           " MiB. Raise the limit, or start fewer ranks on this machine";
  }
  if (::ftruncate(memfd, static_cast<off_t>(bytes)) != 0) return need + ", but ftruncate failed: " + std::strerror(errno);
  return std::nullopt;
}

std::optional<std::string> allocate_memory(int memfd, std::uint64_t begin, std::uint64_t bytes) {
  if (bytes == 0) return std::nullopt;
  const std::string need = "this rank needs " + mebibytes(bytes) + " MiB of shared memory";
  const std::optional<MemoryLimit> limit = tightest_memory_limit();
  if (limit && bytes > limit->available) {
    return need + ", but " + limit->name + " leaves " + mebibytes(limit->available) +
           " MiB. Raise the limit, or start fewer ranks on this machine";
  }
  int result = 0;
  do {
    result = ::fallocate(memfd, 0, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return need + ", but fallocate failed: " + std::strerror(errno);
  return std::nullopt;
}

}  // namespace ddprun::trainer::collectives
