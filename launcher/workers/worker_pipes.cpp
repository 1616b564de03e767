// Implementation of worker_pipes.hpp.
#include "launcher/workers/worker_pipes.hpp"

#include <fcntl.h>
#include <sys/socket.h>

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
  if (error == EMFILE) message += "; each worker needs 3 descriptors: raise the limit (ulimit -Hn) or start fewer workers";
  return InternalError(message);
}

Ends output_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) out_of_descriptors("pipe", errno);
  Ends ends{Descriptor(fds[0]), Descriptor(fds[1])};
  ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return ends;
}

Ends channel_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) out_of_descriptors("channel", errno);
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

}  // namespace ddprun
