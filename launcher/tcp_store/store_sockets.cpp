#include "launcher/tcp_store/store_sockets.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "common/base/error.hpp"
#include "launcher/machine/interface_addresses.hpp"
#include "launcher/machine/local_address.hpp"

namespace ddprun {
namespace {

[[noreturn]] void refuse(int port, int error) {
  if (error == EMFILE || error == ENFILE) {
    throw InternalError("cannot open a socket for the workers' store: " + std::generic_category().message(error) +
                        "; raise the limit on open file descriptors (ulimit -Hn)");
  }
  throw UsageError("the workers' store cannot listen on master port " + std::to_string(port) + ": " +
                   std::generic_category().message(error) + "; with --agent-store off, rank 0 hosts the store instead");
}

// Opens a listening socket. Returns -1 and sets errno if that fails.
int listening_at(const sockaddr& address, socklen_t size, bool dual_stack) {
  const int socket = ::socket(address.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return socket;
  const int on = 1;
  const int v6_only = dual_stack ? 0 : 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // SO_REUSEPORT is needed because the guardian may still have sockets of the previous round's store on this port.
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  if (address.sa_family == AF_INET6) ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
  if (::bind(socket, &address, size) == 0 && ::listen(socket, SOMAXCONN) == 0) return socket;
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

int listening_at(const std::string& number, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(number.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  return listening_at(*found->ai_addr, found->ai_addrlen, false);
}

int listening_everywhere(int port) {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<std::uint16_t>(port));
  int socket = listening_at(reinterpret_cast<const sockaddr&>(v6), sizeof v6, true);
  if (socket >= 0 || errno == EADDRINUSE || errno == EACCES) return socket;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<std::uint16_t>(port));
  return listening_at(reinterpret_cast<const sockaddr&>(v4), sizeof v4, false);
}

}  // namespace

std::vector<std::string> addresses_of_store(const StorePlace& place, const std::vector<std::string>& interface_addresses) {
  const std::string& master = place.master_addr;
  const bool is_name = !is_number(master) && master != "localhost";
  // If the address is unknown, the store must listen on all addresses. A name may resolve differently on other nodes, and they
  // may reach this node through different networks.
  const bool unknown = is_name || (place.many_machines && place.own_address.empty());
  if (unknown) return {};
  std::vector<std::string> addresses{"127.0.0.1", "::1"};
  const auto add = [&](const std::string& address) {
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  };
  if (is_number(master)) add(master);
  if (!place.many_machines) return addresses;
  add(place.own_address);
  for (const std::string& address : interface_addresses) add(address);
  return addresses;
}

std::vector<std::string> addresses_of_store(const StorePlace& place) {
  std::vector<std::string> interface_addresses;
  if (place.many_machines && !is_loopback_number(place.own_address))
    interface_addresses = addresses_of_same_interface(place.own_address);
  return addresses_of_store(place, interface_addresses);
}

ListeningSockets open_store_sockets(const StorePlace& place) {
  ListeningSockets sockets;
  for (const std::string& address : addresses_of_store(place)) {
    const int socket = listening_at(address, place.port);
    if (socket >= 0) {
      sockets.emplace_back(socket);
    } else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT && errno != EPROTONOSUPPORT) {
      refuse(place.port, errno);
    }
  }
  if (!sockets.empty()) return sockets;
  const int socket = listening_everywhere(place.port);
  if (socket < 0) refuse(place.port, errno);
  sockets.emplace_back(socket);
  return sockets;
}

}  // namespace ddprun
