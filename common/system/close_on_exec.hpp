// Opens Asio sockets with SOCK_CLOEXEC. Asio's own open() omits the flag, so child processes would inherit the socket: a hook
// that outlived the agent kept the rendezvous port, and the next agent could not listen.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <boost/system/error_code.hpp>

namespace ddprun {

// Equivalent to socket.open(protocol, error). `Socket` is a socket or an acceptor of Asio.
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
