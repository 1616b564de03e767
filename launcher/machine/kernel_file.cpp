// See kernel_file.hpp.
#include "launcher/machine/kernel_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace ddprun {

std::optional<std::string> read_kernel_file(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char chunk[4096];
  for (;;) {
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(chunk, static_cast<std::size_t>(n));
  }
  ::close(fd);
  return text;
}

}  // namespace ddprun
