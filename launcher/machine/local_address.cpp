#include "launcher/machine/local_address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>

#include "common/system/descriptor.hpp"

namespace ddprun {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) found = nullptr;
  return {found, &::freeaddrinfo};
}

std::string numeric_form_of(const addrinfo& one) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(one.ai_addr, one.ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text.data();
}

}  // namespace

bool is_local_address(const std::string& host) {
  const AddressList list = resolve(host);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    const Descriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // The port is 0, so bind() takes any free port and fails only if the address is not local.
    if (::bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0) return true;
  }
  return false;
}

std::string numeric_address(const std::string& host) {
  const AddressList list = resolve(host);
  return list ? numeric_form_of(*list) : "";
}

bool is_number(const std::string& host) {
  in6_addr ignored{};
  const std::string number = host.substr(0, host.find('%'));  // removes the scope: fe80::1%eth0 becomes fe80::1
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 || ::inet_pton(AF_INET6, number.c_str(), &ignored) == 1;
}

bool is_loopback_number(const std::string& host) {
  return is_number(host) && (host.starts_with("127.") || host == "::1");
}

}  // namespace ddprun
