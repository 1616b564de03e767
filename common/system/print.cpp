// Implementation of print.hpp.
#include "common/system/print.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/error.hpp"
#include "common/system/write_all.hpp"

namespace ddprun {

void print(const std::string& text) {
  if (const int error = write_all(STDOUT_FILENO, text); error == ENOSPC)
    throw InternalError(std::string("cannot write to stdout: ") + std::strerror(error));
}

}  // namespace ddprun
