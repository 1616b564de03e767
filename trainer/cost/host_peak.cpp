// Implementation of host_peak.hpp. VmHWM in /proc/self/status covers this program alone. The peak of getrusage() also includes
// the process that started this program, so it is used only if the kernel reports no VmHWM.
#include "trainer/cost/host_peak.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <string_view>

namespace ddprun::trainer {
namespace {

constexpr std::int64_t kKib = 1024;

std::int64_t kernel_peak_memory() {
  static const int status = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  std::array<char, 4096> buffer{};
  const ssize_t length = status < 0 ? -1 : ::pread(status, buffer.data(), buffer.size(), 0);
  if (length > 0) {
    const std::string_view text(buffer.data(), static_cast<std::size_t>(length));
    if (const std::size_t key = text.find("\nVmHWM:"); key != std::string_view::npos) {
      const std::string_view number = text.substr(text.find_first_of("0123456789", key));
      std::int64_t kib = 0;
      if (std::from_chars(number.data(), number.data() + number.size(), kib).ec == std::errc()) return kib * kKib;
    }
  }
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss * kKib : 0;
}

}  // namespace

// Returns the highest value of VmHWM that was read so far. The kernel sums per-CPU counters without synchronization, so a
// later value may be lower, by about 100 KiB.
std::int64_t host_peak_memory() {
  static std::atomic<std::int64_t> most = 0;
  most = std::max<std::int64_t>(most, kernel_peak_memory());
  return most;
}

std::int64_t recent_host_peak_memory() {
  constexpr std::chrono::milliseconds kRecent{10};
  static std::chrono::steady_clock::time_point last_read{};
  static std::int64_t most = 0;
  if (const auto now = std::chrono::steady_clock::now(); most == 0 || now - last_read >= kRecent) {
    last_read = now;
    most = host_peak_memory();
  }
  return most;
}

}  // namespace ddprun::trainer
