#include "launcher/query/local/control_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string_view>

#include "launcher/events/printf_text.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".sock";
constexpr std::size_t kMaxNames = 1024;

fs::path named_runtime_folder() {
  const char* const named = std::getenv("XDG_RUNTIME_DIR");
  return named != nullptr && named[0] == '/' ? fs::path(named).lexically_normal() : fs::path();
}

// Returns the prefix of this user's names in the abstract namespace. `place` separates groups of jobs: it is "usual", or the
// FNV-1a hash of a directory.
std::string name_in(const std::string& place) {
  return "ddprun/job/" + std::to_string(::geteuid()) + "/" + place + "/";
}

std::string hash_of(const fs::path& folder) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : (folder / "").string()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return printed("%016llx", static_cast<unsigned long long>(hash));
}

bool separates_jobs(const std::vector<fs::path>& folders) {
  return folders.size() == 1;
}

}  // namespace

std::string abstract_name_of(pid_t agent) {
  const std::string place = separates_jobs(control_folders()) ? hash_of(named_runtime_folder()) : "usual";
  std::random_device random;
  return name_in(place) + std::to_string(agent) + "-" + std::to_string(random()) + std::to_string(random());
}

std::vector<std::string> abstract_sockets() {
  std::vector<std::string> places;
  const fs::path named = named_runtime_folder();
  if (!separates_jobs(control_folders())) places.push_back("@" + name_in("usual"));
  // If the directory was removed, its jobs can still be found by the hash of its name.
  if (!named.empty()) places.push_back("@" + name_in(hash_of(named)));
  std::vector<std::string> names;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; names.size() < kMaxNames && std::getline(sockets, line);) {
    constexpr std::string_view kListens = " 00010000 ";
    const std::size_t at = line.find('@');
    if (at == std::string::npos || line.find(kListens) > at) continue;
    const std::string name = line.substr(at);
    if (std::ranges::any_of(places, [&](const std::string& place) { return name.starts_with(place); })) names.push_back(name);
  }
  return names;
}

std::vector<fs::path> control_folders() {
  const std::string user = std::to_string(::geteuid());
  const fs::path of_all = "/tmp/ddprun-" + user, of_login = fs::path("/run/user/" + user);
  const fs::path runtime = named_runtime_folder();
  if (runtime / "" == of_login / "") return {of_login / "ddprun", of_all};
  struct stat info {};
  const bool apart = !runtime.empty() && ::stat(runtime.c_str(), &info) == 0 && info.st_uid == ::geteuid();
  return apart ? std::vector{runtime / "ddprun"} : std::vector{of_all, of_login / "ddprun"};
}

bool create_control_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  return is_private_control_folder(folder);
}

// The function does not follow a symbolic link, since another user may have created the link in /tmp.
bool is_private_control_folder(const fs::path& folder) {
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & 0077) == 0;
}

fs::path control_socket_of(const fs::path& folder, pid_t agent, int number) {
  return folder / (std::to_string(agent) + (number > 0 ? "." + std::to_string(number) : "") + std::string(kEnding));
}

std::optional<pid_t> agent_of_socket(const fs::path& socket) {
  const std::string name = socket.filename().string();
  const char* const all = name.data() + name.size();
  pid_t pid = 0;
  const auto [behind_pid, no_pid] = std::from_chars(name.data(), all, pid);
  if (no_pid != std::errc() || pid <= 0) return std::nullopt;
  const std::string_view rest(behind_pid, all);
  if (rest == kEnding) return pid;
  int number = 0;
  const auto [behind_number, no_number] = std::from_chars(rest.data() + rest.starts_with('.'), all, number);
  const bool numbered = rest.starts_with('.') && no_number == std::errc() && number > 0;
  return numbered && std::string_view(behind_number, all) == kEnding ? std::optional(pid) : std::nullopt;
}

}  // namespace ddprun
