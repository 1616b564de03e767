#include "common/system/host_name.hpp"

#include <netdb.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string_view>

namespace ddprun {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

std::string host_file_name() {
  std::string safe;
  for (const char c : host_name()) {
    const auto byte = static_cast<unsigned char>(c);
    constexpr std::string_view kDigits = "0123456789abcdef";
    const bool first_dot = c == '.' && safe.empty();  // prevents ".", ".." and hidden files
    if (byte > ' ' && byte != 0x7f && c != '/' && c != '%' && !first_dot) {
      safe.push_back(c);
    } else {
      ((safe += '%') += kDigits[byte >> 4U]) += kDigits[byte & 15U];
    }
  }
  return safe;
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
