// Implementation of host_name.hpp.
#include "common/system/host_name.hpp"

#include <netdb.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace ddprun {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

std::string full_host_name() {
  std::string name = host_name();
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return name;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  return found->ai_canonname != nullptr ? found->ai_canonname : name;
}

}  // namespace ddprun
