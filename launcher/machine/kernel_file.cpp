#include "launcher/machine/kernel_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/system/descriptor.hpp"

namespace ddprun {

std::optional<std::string> read_kernel_file(const char* path) {
  const Descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return std::nullopt;
  std::string text;
  char chunk[4096];
  for (;;) {
    const ssize_t n = ::read(file.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(chunk, static_cast<std::size_t>(n));
  }
  return text;
}

}  // namespace ddprun
