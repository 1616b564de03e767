#include "launcher/doctor/observe_network.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "launcher/machine/local_address.hpp"

namespace ddprun::doctor {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

bool is_useful_address(const sockaddr* address) {
  if (address == nullptr) return false;
  if (address->sa_family == AF_INET) return true;
  return address->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::vector<Interface> interfaces() {
  constexpr std::size_t kMaxInterfaces = 4096;  // limit; a machine that runs containers has several hundred interfaces
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, ::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    auto known = std::ranges::find(found, one->ifa_name, &Interface::name);
    if (known == found.end()) {
      if (found.size() == kMaxInterfaces) break;
      found.push_back({.name = one->ifa_name,
                       .is_up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_RUNNING) != 0,
                       .is_loopback = (one->ifa_flags & IFF_LOOPBACK) != 0,
                       .has_address = false});
      known = found.end() - 1;
    }
    if (is_useful_address(one->ifa_addr)) known->has_address = true;
  }
  return found;
}

std::vector<InfinibandDevice> infiniband() {
  std::vector<InfinibandDevice> found;
  std::error_code ignored;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", ignored)) {
    InfinibandDevice one{.name = device.path().filename().string(), .ports = 0, .active_ports = 0};
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored)) {
      std::string state;  // "4: ACTIVE"
      std::getline(std::ifstream(port.path() / "state"), state);
      ++one.ports;
      if (state.starts_with('4')) ++one.active_ports;
    }
    found.push_back(std::move(one));
  }
  std::ranges::sort(found, {}, &InfinibandDevice::name);
  return found;
}

}  // namespace

NameFacts observe_name(const std::string& name) {
  NameFacts facts{.name = name};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &first) != 0) return facts;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(first, ::freeaddrinfo);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (std::ranges::find(facts.addresses, text.data()) == facts.addresses.end()) facts.addresses.emplace_back(text.data());
  }
  facts.is_local = is_local_address(name);
  return facts;
}

InterfaceFacts observe_interfaces() {
  return {.interfaces = interfaces(),
          .infiniband = infiniband(),
          .gloo = variable("GLOO_SOCKET_IFNAME"),
          .nccl = variable("NCCL_SOCKET_IFNAME"),
          .nccl_hca = variable("NCCL_IB_HCA")};
}

}  // namespace ddprun::doctor
