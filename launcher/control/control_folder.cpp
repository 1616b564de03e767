// Implementation of control_folder.hpp.
#include "launcher/control/control_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".sock";

}  // namespace

std::vector<fs::path> control_folders() {
  const std::string user = std::to_string(::geteuid());
  const fs::path of_all = "/tmp/ddprun-" + user, of_login = fs::path("/run/user/" + user);
  const char* const named = std::getenv("XDG_RUNTIME_DIR");
  const fs::path runtime = named != nullptr && named[0] == '/' ? fs::path(named).lexically_normal() : fs::path();
  if (runtime / "" == of_login / "") return {of_login / "ddprun", of_all};
  struct stat info {};
  const bool apart = !runtime.empty() && ::stat(runtime.c_str(), &info) == 0 && info.st_uid == ::geteuid();
  return apart ? std::vector{runtime / "ddprun"} : std::vector{of_all, of_login / "ddprun"};
}

bool own_control_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  return is_own_control_folder(folder);
}

// A link is refused, since somebody else may have made it in /tmp.
bool is_own_control_folder(const fs::path& folder) {
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
