// Implementation of bound_ports.hpp.
//
// Note [How bind() is replaced]
// libtorch calls bind() through the dynamic linker, which finds the program's definition before the C library's definition. The
// static linker exports the program's definition, because a shared library that is linked to the program refers to bind(). No
// class of Gloo is changed, so this works with any version of Gloo.
#include "trainer/parallel/bound_ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace ddprun::trainer {
namespace {

thread_local std::optional<BoundPortRange> bound_range;
thread_local int bound_error = 0;  // errno of the last bind() that found no port of the range

int call_bind(int fd, const sockaddr* address, socklen_t length) {
  return static_cast<int>(::syscall(SYS_bind, fd, address, length));
}

// Returns the port field of the address if its value is 0 (any port). Otherwise, or if the address has no port, returns
// nullptr.
in_port_t* any_port_of(sockaddr_storage& address, socklen_t length) {
  in_port_t* port = nullptr;
  if (address.ss_family == AF_INET && length >= sizeof(sockaddr_in)) port = &reinterpret_cast<sockaddr_in&>(address).sin_port;
  if (address.ss_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    port = &reinterpret_cast<sockaddr_in6&>(address).sin6_port;
  }
  return port != nullptr && *port == 0 ? port : nullptr;
}

// Tries the ports of the range until bind() succeeds, and returns the result of the last bind(). Clears SO_REUSEADDR for the
// attempts, since two sockets with this option can bind to the same port as long as neither listens.
int bind_within(const BoundPortRange& range, int fd, const sockaddr_storage& address, in_port_t& port, socklen_t length) {
  const int no = 0;
  int before = 0;
  socklen_t size = sizeof before;
  ::getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &before, &size);
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &no, sizeof no);
  const int ports = range.high - range.low + 1;
  int result = -1;
  for (int i = 0; i < ports && result != 0; ++i) {
    // The attempts of different workers start at different ports.
    port = htons(static_cast<in_port_t>(range.low + (::getpid() + i) % ports));
    result = call_bind(fd, reinterpret_cast<const sockaddr*>(&address), length);
    if (result != 0 && errno != EADDRINUSE) break;
  }
  const int error = errno;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &before, sizeof before);
  errno = error;
  return result;
}

int bind_in_range(int fd, const sockaddr* address, socklen_t length) {
  sockaddr_storage copy{};
  if (bound_range && address != nullptr && length <= sizeof copy) {
    std::memcpy(&copy, address, length);
    in_port_t* port = any_port_of(copy, length);
    if (port == nullptr) return call_bind(fd, address, length);
    const int result = bind_within(*bound_range, fd, copy, *port, length);
    if (result == 0) bound_error = 0;
    // Other errors, such as an address of another machine, do not depend on the port. Gloo then tries its next address.
    if (result != 0 && (errno == EADDRINUSE || errno == EACCES)) bound_error = errno;
    return result;
  }
  return call_bind(fd, address, length);
}

}  // namespace

std::optional<BoundPortRange> port_range_of(std::string_view text) {
  BoundPortRange range;
  const char* const end = text.data() + text.size();
  const auto low = std::from_chars(text.data(), end, range.low);
  if (low.ec != std::errc() || low.ptr == end || *low.ptr != '-') return std::nullopt;
  const auto high = std::from_chars(low.ptr + 1, end, range.high);
  const bool is_range =
      high.ec == std::errc() && high.ptr == end && 0 < range.low && range.low <= range.high && range.high <= 65535;
  return is_range ? std::optional(range) : std::nullopt;
}

BoundPorts::BoundPorts(std::optional<BoundPortRange> range) {
  bound_range = range;
  bound_error = 0;
}

BoundPorts::~BoundPorts() {
  bound_range.reset();
}

std::string BoundPorts::problem() const {
  if (!bound_range || bound_error == 0) return "";
  const std::string range = std::to_string(bound_range->low) + "-" + std::to_string(bound_range->high);
  const std::string why = bound_error == EADDRINUSE ? "no port is free for Gloo"
                                                    : "Gloo cannot use its ports: " + std::string(std::strerror(bound_error));
  return "--port-range " + range + ": " + why +
         ". Each worker of this machine needs one port, and a second one while a lost worker is replaced. Use a larger range, "
         "or stop the programs that use these ports (ss -ltnp)";
}

}  // namespace ddprun::trainer

extern "C" __attribute__((visibility("default"))) int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  return ddprun::trainer::bind_in_range(fd, address, length);
}
