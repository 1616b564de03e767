// HOST:PORT as people write it. Used for every option that names another machine. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/options/parse_number.hpp"

namespace ddprun {

struct HostAndPort {
  std::string host;         // without brackets; may be empty where there is no port
  std::optional<int> port;  // 0 to 65535
};

// HOST, HOST:PORT, [IPv6], [IPv6]:PORT, or an IPv6 address alone. Nothing when it is none of these.
inline std::optional<HostAndPort> parse_host_and_port(std::string_view text) {
  text = without_spaces_around(text);
  std::string_view host = text;
  std::string_view rest;  // with its colon
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos && colon == text.rfind(':')) {
    host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (rest.empty()) return HostAndPort{std::string(host), std::nullopt};
  const auto port = rest.front() == ':' ? parse_whole(rest.substr(1)) : std::nullopt;
  if (!port || *port < 0 || *port > 65535 || host.empty()) return std::nullopt;
  return HostAndPort{std::string(host), static_cast<int>(*port)};
}

}  // namespace ddprun
