// Implementation of ports.hpp. The sockets are dual-stack (like TCPStore's listener) if the machine has IPv6, and plain IPv4
// otherwise.
#include "launcher/machine/ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

enum class Options { kReuseAddress, kNone };

// Binds the socket and returns it. If that fails, closes the socket and returns -1 with errno set.
template <class Address>
int bound(int fd, const Address& address, std::size_t size = sizeof(Address)) {
  if (fd < 0) return -1;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(size)) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

// Returns a bound socket, or -1 with errno set.
int bound_socket(int port, Options options = Options::kReuseAddress) {
  const int on = options == Options::kReuseAddress ? 1 : 0;
  const auto made = [&](int family) {
    const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return fd;
  };
  if (const int fd = made(AF_INET6); fd >= 0) {
    const int off = 0;
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(static_cast<std::uint16_t>(port));
    if (bound(fd, address) >= 0) return fd;
    if (errno == EADDRINUSE || errno == EACCES) return -1;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return bound(made(AF_INET), address);
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// Binds the abstract socket whose name marks the port as reserved by an agent. Returns the socket, or -1 with errno set.
// EADDRINUSE means that another process has reserved the port.
int name_of_port(int port) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "ddprun/port/" + std::to_string(port);
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // the name follows the zero byte that makes it abstract
  return bound(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), address, offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string other_port_hint() {
  return "; choose another port with --master-port, or a free one with --master-port 0 or --standalone";
}

[[noreturn]] void refuse_held(int port) {
  throw UsageError("master port " + std::to_string(port) + " is held by another ddprun on this machine" + other_port_hint());
}

// Call this if bind() of a port's reservation socket (name_of_port()) has failed with an errno other than EADDRINUSE. Only
// EADDRINUSE means that another agent has reserved the port. Throws InternalError.
[[noreturn]] void refuse_name(int error) {
  const bool descriptors = error == EMFILE || error == ENFILE;
  throw InternalError("cannot reserve a master port: " + std::generic_category().message(error) +
                      (descriptors ? "; raise the limit on open file descriptors (ulimit -Hn)" : ""));
}

void refuse_if_held_by_ddprun(int port) {
  const int name_fd = name_of_port(port);
  if (name_fd < 0 && errno != EADDRINUSE) refuse_name(errno);
  if (name_fd < 0) refuse_held(port);
  ::close(name_fd);
}

// Binds a port although another process has reserved it with name_of_port(). This succeeds if no process has bound the port
// itself. Otherwise the function returns -1.
int bind_despite_taken_name(int port) {
  const int fd = bound_socket(port, Options::kNone);
  const int on = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return fd;
}

constexpr int kTries = 64;  // number of kernel-chosen ports that are tried

}  // namespace

// Polls every 10 ms, since the kernel sends no event when a port becomes free.
void wait_for_port_release(int port) {
  const auto end = std::chrono::steady_clock::now() + kStoreCloseTimeout;
  while (std::chrono::steady_clock::now() < end) {
    const int fd = bound_socket(port);
    if (fd >= 0) ::close(fd);
    if (fd >= 0 || errno != EADDRINUSE) return;
    const int name_fd = name_of_port(port);
    if (name_fd < 0) return;  // a running agent has reserved the port
    ::close(name_fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Starts at an offset in the range that depends on the process id, so that jobs that start together try different ports.
HeldPort HeldPort::within(const PortRange& range) {
  const int first = static_cast<int>((::getpid() * 7919LL) % range.size());
  for (int i = 0; i < range.size(); ++i) {
    const int port = range.low + (first + i) % range.size();
    const int fd = bound_socket(port);
    if (fd < 0) continue;
    if (const int name_fd = name_of_port(port); name_fd >= 0) return {fd, name_fd, port};
    ::close(fd);
  }
  throw UsageError("--port-range: all ports from " + std::to_string(range.low) + " to " + std::to_string(range.high) +
                   " are in use: give a larger range, or end the programs that use them (ss -ltnp lists them)");
}

HeldPort HeldPort::any(const PortRange& range) {
  if (range.given()) return within(range);
  for (int i = 0; i < kTries; ++i) {
    const int fd = bound_socket(0);
    if (fd < 0) break;
    const int port = port_of(fd);
    if (const int name_fd = name_of_port(port); name_fd >= 0) return {fd, name_fd, port};
    ::close(fd);
  }
  const char* advice = errno == EMFILE ? "; raise the limit on open file descriptors (ulimit -Hn)" : "";
  throw InternalError("no free TCP port for MASTER_PORT: " + std::generic_category().message(errno) + advice);
}

// Polls every 10 ms, since the kernel sends no event when a port becomes free.
HeldPort HeldPort::exactly(int port, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  int fd = bound_socket(port);
  while (fd < 0 && errno == EADDRINUSE && std::chrono::steady_clock::now() < end) {
    // If a running agent has reserved the port, this throws and does not wait. A killed agent no longer reserves the port.
    refuse_if_held_by_ddprun(port);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    fd = bound_socket(port);
  }
  if (fd < 0) {
    if (errno == EADDRINUSE) {
      refuse_if_held_by_ddprun(port);  // throws if the store of another ddprun process uses the port
      throw UsageError("master port " + std::to_string(port) + " is in use by another program" + other_port_hint());
    }
    throw UsageError("master port " + std::to_string(port) + " cannot be used: " + std::generic_category().message(errno) +
                     other_port_hint());
  }
  const int name_fd = name_of_port(port);
  if (name_fd >= 0) return {fd, name_fd, port};
  const int error = errno;
  ::close(fd);
  if (error != EADDRINUSE) refuse_name(error);
  fd = bind_despite_taken_name(port);
  if (fd < 0) refuse_held(port);
  return {fd, -1, port};
}

HeldPort HeldPort::own(int port) {
  return {-1, name_of_port(port), port};
}

void HeldPort::admit(PortListener listener) {
  if (socket_.get() < 0) return;
  const int rank_0 = listener == PortListener::kRank0 ? 1 : 0;
  const int store = 1 - rank_0;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &rank_0, sizeof rank_0);
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEPORT, &store, sizeof store);
}

HeldPort HeldPort::of(int port, PortNeed need, const PortRange& range) {
  if (port == 0) return any(range);
  if (need == PortNeed::kExactly) return exactly(port, kStoreCloseTimeout);
  try {
    return exactly(port);
  } catch (const UsageError&) {
    return any(range);
  }
}

}  // namespace ddprun
