#include "launcher/doctor/nodes/interface_mtu.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>

#include "common/system/descriptor.hpp"

namespace ddprun::doctor {
namespace {

bool has_address(const ifaddrs& one, const std::string& address) {
  if (one.ifa_addr == nullptr) return false;
  const bool v4 = one.ifa_addr->sa_family == AF_INET;
  if (!v4 && one.ifa_addr->sa_family != AF_INET6) return false;
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return ::getnameinfo(one.ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0 && address == text.data();
}

}  // namespace

std::optional<int> mtu_of_address(const std::string& address) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, ::freeifaddrs);
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if ((one->ifa_flags & IFF_LOOPBACK) != 0 || !has_address(*one, address)) continue;
    const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::strncpy(request.ifr_name, one->ifa_name, sizeof(request.ifr_name) - 1);
    if (::ioctl(socket.get(), SIOCGIFMTU, &request) == 0) return request.ifr_mtu;
  }
  return std::nullopt;
}

}  // namespace ddprun::doctor
