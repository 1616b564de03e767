// Parses the value of --hosts: the machines on which ddprun starts agents over ssh. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

struct Host {
  std::string target;          // the argument of ssh: [USER@]NAME
  std::string name;            // the target without the user, for messages and prefixes
  std::optional<int> workers;  // the number of workers in HOST:N
  bool operator==(const Host&) const = default;
};

inline constexpr std::size_t kMaxHosts = 512;  // maximum number of hosts; each of them needs an ssh process

// Parses "a,bob@b:4,[fd00::7]:2". Throws UsageError for an empty entry, a count outside 1 to 4096, and a host that occurs
// twice. Also throws it for a name that ssh would take for an option.
std::vector<Host> parse_hosts(std::string_view text);

}  // namespace ddprun
