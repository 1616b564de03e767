// Implementation of print.hpp: write(2) until all of it is out.
#include "common/system/print.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/base/error.hpp"

namespace ddprun {

void print(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == ENOSPC) throw InternalError(std::string("cannot write to stdout: ") + std::strerror(errno));
    if (count <= 0) return;
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace ddprun
