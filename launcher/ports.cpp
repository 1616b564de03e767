// Implementation of ports.hpp. Dual-stack where there is IPv6, as TCPStore's listener is; plain IPv4 otherwise.
#include "launcher/ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "common/error.hpp"

namespace ddprun {
namespace {

// A bound socket, or -1 with errno set.
int bound_socket(int port) {
  const int on = 1;
  int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    const int off = 0;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    const int error = errno;
    ::close(fd);
    errno = error;
    if (error == EADDRINUSE || error == EACCES) return -1;
  }
  fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

HeldPort HeldPort::any() {
  const int fd = bound_socket(0);
  if (fd < 0) throw InternalError("no free TCP port for MASTER_PORT: " + std::generic_category().message(errno));
  return {fd, port_of(fd)};
}

HeldPort HeldPort::exactly(int port) {
  const int fd = bound_socket(port);
  if (fd < 0) {
    throw UsageError("the master port " + std::to_string(port) + " can't be used: " + std::generic_category().message(errno) +
                     "; choose another with --master-port, or 0 for a free one");
  }
  return {fd, port};
}

HeldPort::HeldPort(HeldPort&& other) noexcept : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}

HeldPort& HeldPort::operator=(HeldPort&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(port_, other.port_);
  return *this;
}

HeldPort::~HeldPort() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace ddprun
