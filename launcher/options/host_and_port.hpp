// Parses HOST:PORT as users write it, for every option that names another machine. The code is pure: no I/O, no clock.
//
// An IPv6 address with a port needs brackets. Without brackets the text is ambiguous. After a wrong guess ddprun would wait ten
// minutes for a host that does not exist. "fd00::7:29499" is not an address, since a group has at most four digits.
// "fd00::7:2949" is an address, but the user more likely means port 2949 of fd00::7. Both texts are refused, and the message
// shows the form with brackets.
#pragma once

#include <arpa/inet.h>

#include <optional>
#include <string>
#include <string_view>

#include "launcher/options/parse_number.hpp"

namespace ddprun {

struct HostAndPort {
  std::string host;         // without brackets; may be empty only if there is no port
  std::optional<int> port;  // 0 to 65535
};

// Returns true if the text is an IPv6 address. A zone may follow ("fe80::1%eth0").
inline bool is_ipv6(std::string_view text) {
  const std::size_t zone = text.find('%');
  if (zone != std::string_view::npos && zone + 1 == text.size()) return false;
  in6_addr address{};
  return ::inet_pton(AF_INET6, std::string(text.substr(0, zone)).c_str(), &address) == 1;
}

// If the text is an IPv6 address and a port without brackets, returns the form with brackets for a message. Returns nullopt
// for any other text.
inline std::optional<std::string> with_brackets(std::string_view text) {
  text = without_spaces_around(text);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.starts_with('[')) return std::nullopt;
  const std::string_view last = text.substr(colon + 1);
  constexpr std::size_t kMinDigits = 4;  // users rarely mean a shorter last group as a port, as in "fe80::1:2"
  const bool may_be_port = last.size() >= kMinDigits && last.find_first_not_of("0123456789") == std::string_view::npos;
  if (!may_be_port || !is_ipv6(text.substr(0, colon))) return std::nullopt;
  return "[" + std::string(text.substr(0, colon)) + "]:" + std::string(last);
}

// Accepts HOST, HOST:PORT, [IPv6], [IPv6]:PORT, or an IPv6 address alone. Returns nullopt for any other text.
inline std::optional<HostAndPort> parse_host_and_port(std::string_view text) {
  text = without_spaces_around(text);
  std::string_view host = text;
  std::string_view rest;  // the part after the host, including its colon
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
    if (!is_ipv6(host)) return std::nullopt;
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    if (colon == text.rfind(':')) {
      host = text.substr(0, colon);
      rest = text.substr(colon);
    } else if (!is_ipv6(text) || with_brackets(text)) {
      return std::nullopt;
    }
  }
  if (rest.empty()) return HostAndPort{std::string(host), std::nullopt};
  const auto port = rest.front() == ':' ? parse_whole(rest.substr(1)) : std::nullopt;
  if (!port || *port < 0 || *port > 65535 || host.empty()) return std::nullopt;
  return HostAndPort{std::string(host), static_cast<int>(*port)};
}

}  // namespace ddprun
