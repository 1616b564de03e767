// Implementation of store_sockets.hpp.
#include "launcher/machine/store_sockets.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "common/base/error.hpp"
#include "launcher/machine/interfaces.hpp"
#include "launcher/machine/own_address.hpp"

namespace ddprun {
namespace {

[[noreturn]] void refuse(int port, int error) {
  if (error == EMFILE || error == ENFILE) {
    throw InternalError("no descriptor for the workers' store: " + std::generic_category().message(error) +
                        "; raise the limit of descriptors (ulimit -Hn)");
  }
  throw UsageError("the workers' store cannot listen at master port " + std::to_string(port) + ": " +
                   std::generic_category().message(error) + "; --agent-store off leaves the store to rank 0");
}

// Returns a listening socket, or -1 with errno set.
int listening_at(const sockaddr& address, socklen_t size, bool dual_stack) {
  const int socket = ::socket(address.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return socket;
  const int on = 1;
  const int v6_only = dual_stack ? 0 : 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // The guardian may still hold the sockets that listened for the previous round.
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

std::vector<std::string> addresses_of_store(const StorePlace& place, const std::vector<std::string>& beside) {
  const std::string& master = place.master_addr;
  const bool is_name = !is_number(master) && master != "localhost";
  // The nodes may reach this one on different networks and resolve a name differently.
  const bool unknown = is_name || (place.many_machines && place.own_address.empty());
  if (unknown) return {};
  std::vector<std::string> addresses{"127.0.0.1", "::1"};
  const auto add = [&](const std::string& address) {
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  };
  if (is_number(master)) add(master);
  if (!place.many_machines) return addresses;
  add(place.own_address);
  for (const std::string& address : beside) add(address);
  return addresses;
}

std::vector<std::string> addresses_of_store(const StorePlace& place) {
  std::vector<std::string> beside;
  if (place.many_machines && !is_loopback_number(place.own_address)) beside = addresses_beside(place.own_address);
  return addresses_of_store(place, beside);
}

ListeningSockets::~ListeningSockets() {
  for (const int fd : all_) ::close(fd);
}

ListeningSockets open_store_sockets(const StorePlace& place) {
  ListeningSockets sockets;
  for (const std::string& address : addresses_of_store(place)) {
    const int socket = listening_at(address, place.port);
    if (socket >= 0) {
      sockets.add(socket);
    } else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT && errno != EPROTONOSUPPORT) {
      refuse(place.port, errno);
    }
  }
  if (!sockets.all().empty()) return sockets;
  const int socket = listening_everywhere(place.port);
  if (socket < 0) refuse(place.port, errno);
  sockets.add(socket);
  return sockets;
}

}  // namespace ddprun
