#include "common/system/print.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "common/base/error.hpp"
#include "common/system/write_all.hpp"

namespace ddprun {

namespace {

// Returns 0, or EPIPE if stdout is a pipe whose reader has closed its end.
int write_to_stdout(const std::string& text) {
  const int error = write_all(STDOUT_FILENO, text);
  if (error == ENOSPC) throw InternalError(std::string("cannot write to stdout: ") + std::strerror(error));
  return error;
}

}  // namespace

void print(const std::string& text) {
  write_to_stdout(text);
}

void print_while_read(const std::string& text) {
  if (write_to_stdout(text) != 0) std::exit(0);
}

}  // namespace ddprun
