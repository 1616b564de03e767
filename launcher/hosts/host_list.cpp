#include "launcher/hosts/host_list.hpp"

#include <algorithm>
#include <cstdint>

#include "common/base/error.hpp"
#include "common/base/numbers.hpp"
#include "common/base/printable.hpp"
#include "common/base/split.hpp"

namespace ddprun {
namespace {

constexpr std::int64_t kMaxWorkers = 4096;

[[noreturn]] void refuse_entry(std::string_view entry, const std::string& expected) {
  throw UsageError("--hosts: expected " + expected + ", but got '" + printable(entry) + "'");
}

// Returns true if the text contains only characters of host names, addresses and user names. ssh would take a name that starts
// with '-' for an option.
bool is_target(std::string_view text) {
  const auto allowed = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c >= 0x80 ||
           std::string_view("._-@%+:").find(static_cast<char>(c)) != std::string_view::npos;
  };
  return !text.empty() && text.front() != '-' && text.front() != '@' && text.back() != '@' &&
         std::ranges::all_of(text, allowed);
}

std::string in_lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// Returns the host of an entry, in the form that ssh expects: an IPv6 address without brackets, with "user@" before it if the
// entry has one. Stores the text after the host in `count`.
std::string target_of(std::string_view entry, std::string_view& count) {
  const std::size_t bracket = entry.find('[');
  if (bracket != std::string_view::npos) {
    const std::size_t end = entry.find(']', bracket);
    const bool is_start = bracket == 0 || entry[bracket - 1] == '@';
    if (!is_start || end == std::string_view::npos) refuse_entry(entry, "HOST or HOST:N, with an IPv6 address as [ADDRESS]:N");
    count = entry.substr(end + 1);
    return std::string(entry.substr(0, bracket)) + std::string(entry.substr(bracket + 1, end - bracket - 1));
  }
  const std::size_t colon = entry.find(':');
  if (colon != entry.rfind(':')) refuse_entry(entry, "an IPv6 address in brackets, such as [fd00::7] or [fd00::7]:4");
  count = colon == std::string_view::npos ? std::string_view() : entry.substr(colon);
  return std::string(entry.substr(0, colon));
}

Host parse_host(std::string_view entry) {
  std::string_view count;
  Host host;
  host.target = target_of(entry, count);
  if (!is_target(host.target)) refuse_entry(entry, "HOST or HOST:N with the name or address of a machine, as for ssh");
  host.name = host.target.substr(host.target.rfind('@') + 1);  // without '@', npos + 1 is 0
  if (count.empty()) return host;
  const auto workers = count.front() == ':' ? exact_number<std::int64_t>(count.substr(1)) : std::nullopt;
  if (!workers || *workers < 1 || *workers > kMaxWorkers)
    refuse_entry(entry, "HOST:N with a number of workers N from 1 to " + std::to_string(kMaxWorkers));
  host.workers = static_cast<int>(*workers);
  return host;
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view entry = without_spaces_around(part);
    if (entry.empty())
      refuse_entry(text,
                   "HOST[:N],HOST[:N],... without an empty entry (entry " + std::to_string(hosts.size() + 1) + " is empty)");
    Host host = parse_host(entry);
    const auto is_same = [&](const Host& other) { return in_lower_case(other.name) == in_lower_case(host.name); };
    if (std::ranges::any_of(hosts, is_same)) {
      throw UsageError("--hosts: the host '" + printable(host.name) +
                       "' occurs twice, but each machine runs one agent: set its number of workers with " +
                       printable(host.name) + ":N");
    }
    hosts.push_back(std::move(host));
    if (hosts.size() > kMaxHosts)
      throw UsageError("--hosts: expected at most " + std::to_string(kMaxHosts) +
                       " hosts, since each of them needs an ssh process: use a scheduler, or ddprun join");
  }
  return hosts;
}

}  // namespace ddprun
