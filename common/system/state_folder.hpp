// The folder in which ddprun keeps data between runs: $XDG_STATE_HOME/ddprun, or else ~/.local/state/ddprun. It belongs to one
// user. All machines of a cluster share it if they share the home directory.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace ddprun {

// Returns the path of the folder; empty if the user has no home directory. The folder need not exist.
inline std::filesystem::path state_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  std::filesystem::path state = variable("XDG_STATE_HOME");
  if (!state.is_absolute()) {
    const std::filesystem::path home = variable("HOME");
    if (!home.is_absolute()) return {};
    state = home / ".local" / "state";
  }
  return state / "ddprun";
}

}  // namespace ddprun
