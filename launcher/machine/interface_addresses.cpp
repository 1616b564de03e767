#include "launcher/machine/interface_addresses.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>
#include <set>
#include <system_error>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

bool is_link_local(const sockaddr& address) {
  return address.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

std::string number_of(const sockaddr& address) {
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return ::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0 ? text.data() : "";
}

bool is_internet(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

}  // namespace

std::vector<std::string> addresses_of_same_interface(const std::string& address) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, ::freeifaddrs);
  std::string interface;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (is_internet(one->ifa_addr) && number_of(*one->ifa_addr) == address) interface = one->ifa_name;
  }
  std::vector<std::string> addresses;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (!is_internet(one->ifa_addr) || is_link_local(*one->ifa_addr) || one->ifa_name != interface) continue;
    addresses.push_back(number_of(*one->ifa_addr));
  }
  return addresses;
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    throw UsageError("--interface: the network interfaces of this machine cannot be listed: " +
                     std::generic_category().message(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, ::freeifaddrs);
  std::set<std::string> usable;
  std::string v6;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (!is_internet(one->ifa_addr) || is_link_local(*one->ifa_addr)) continue;
    usable.insert(one->ifa_name);
    if (one->ifa_name != name) continue;
    if (one->ifa_addr->sa_family == AF_INET) return number_of(*one->ifa_addr);
    if (v6.empty()) v6 = number_of(*one->ifa_addr);
  }
  if (!v6.empty()) return v6;
  std::string names;
  for (const std::string& one : usable) names += (names.empty() ? "" : ", ") + one;
  throw UsageError("--interface: expected a network interface of this machine that has an address, but got '" + name +
                   "'; available: " + (names.empty() ? "none" : names) + " (ip addr)");
}

std::optional<std::string> first_external_address() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, ::freeifaddrs);
  std::optional<std::string> v6;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    const bool is_usable = is_internet(one->ifa_addr) && (one->ifa_flags & IFF_LOOPBACK) == 0 && (one->ifa_flags & IFF_UP) != 0;
    if (!is_usable || is_link_local(*one->ifa_addr)) continue;
    if (one->ifa_addr->sa_family == AF_INET) return number_of(*one->ifa_addr);
    if (!v6) v6 = number_of(*one->ifa_addr);
  }
  return v6;
}

}  // namespace ddprun
