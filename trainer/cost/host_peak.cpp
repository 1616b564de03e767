// Implementation of host_peak.hpp. VmHWM is of this program alone; getrusage() begins with the peak of the process that started
// it, so it is asked only where the kernel tells no VmHWM.
#include "trainer/cost/host_peak.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

namespace ddprun::trainer {
namespace {

constexpr std::int64_t kKib = 1024;

}  // namespace

std::int64_t host_peak_memory() {
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

}  // namespace ddprun::trainer
