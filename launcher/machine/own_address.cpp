// Implementation of own_address.hpp.
#include "launcher/machine/own_address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>

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

bool is_own_address(const std::string& host) {
  const AddressList list = resolve(host);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    const int fd = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    const bool own = ::bind(fd, one->ai_addr, one->ai_addrlen) == 0;  // bind() uses port 0, so any free port
    ::close(fd);
    if (own) return true;
  }
  return false;
}

std::string numeric_address(const std::string& host) {
  const AddressList list = resolve(host);
  return list ? numeric_form_of(*list) : "";
}

bool is_number(const std::string& host) {
  in6_addr ignored{};
  const std::string number = host.substr(0, host.find('%'));  // without the scope, as in fe80::1%eth0
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 || ::inet_pton(AF_INET6, number.c_str(), &ignored) == 1;
}

bool is_loopback_number(const std::string& host) {
  return is_number(host) && (host.starts_with("127.") || host == "::1");
}

}  // namespace ddprun
