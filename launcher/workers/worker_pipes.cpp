#include "launcher/workers/worker_pipes.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <termios.h>

#include <cerrno>
#include <system_error>

namespace ddprun {
namespace {

[[noreturn]] void out_of_descriptors(const char* what, int error) {
  throw refused_by_system(std::string("cannot make a ") + what + " for a worker", error);
}

}  // namespace

InternalError refused_by_system(const std::string& what, int error) {
  std::string message = what + ": " + std::generic_category().message(error);
  if (error == EMFILE) message += "; each worker needs 3 file descriptors: raise the limit (ulimit -Hn) or start fewer workers";
  return InternalError(message);
}

Ends output_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) out_of_descriptors("pipe", errno);
  Ends ends{Descriptor(fds[0]), Descriptor(fds[1])};
  ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return ends;
}

Ends terminal_pair(const winsize& size) {
  const auto none = [] { return Ends{Descriptor(), Descriptor()}; };
  Descriptor ours(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  char name[64];
  if (ours.get() < 0 || ::unlockpt(ours.get()) != 0 || ::ptsname_r(ours.get(), name, sizeof name) != 0) return none();
  Descriptor workers(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings{};
  if (workers.get() < 0 || ::tcgetattr(workers.get(), &settings) != 0) return none();
  ::cfmakeraw(&settings);
  if (::tcsetattr(workers.get(), TCSANOW, &settings) != 0) return none();
  ::ioctl(workers.get(), TIOCSWINSZ, &size);
  return {std::move(ours), std::move(workers)};
}

Ends channel_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) out_of_descriptors("channel", errno);
  const int on = 1;
  ::setsockopt(fds[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);  // makes the kernel report the pid of the sender
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

}  // namespace ddprun
