// Opens Asio sockets with SOCK_CLOEXEC. The open() function of Asio does not set that flag, so child processes inherit the
// socket. In one case a hook (a user's program that the agent had started) survived its agent and kept the rendezvous port
// open. The next agent could not listen at that port.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <boost/system/error_code.hpp>

namespace ddprun {

// Works like socket.open(protocol, error), but sets SOCK_CLOEXEC. `Socket` is a socket or an acceptor of Asio.
template <class Socket, class Protocol>
void open_close_on_exec(Socket& socket, const Protocol& protocol, boost::system::error_code& error) {
  const int fd = ::socket(protocol.family(), protocol.type() | SOCK_CLOEXEC, protocol.protocol());
  if (fd < 0) {
    error.assign(errno, boost::system::system_category());
    return;
  }
  socket.assign(protocol, fd, error);
  if (error) ::close(fd);
}

}  // namespace ddprun
