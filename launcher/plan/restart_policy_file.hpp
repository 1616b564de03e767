// Reads the file of --restart-policy: the user's restart rules as JSON with comments. As for a train.json, all errors of the
// file are reported together. Each has the line, column, JSON pointer and the nearest valid name. plan_restarts.cpp calls it.
// launcher/restart_policy/restart_policy.hpp explains the rules, and docs/failures.md explains the format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/restart_policy/restart_policy.hpp"

namespace ddprun {

struct RestartPolicyFile {
  std::optional<int> max_restarts{};  // has no effect if --max-restarts is given
  std::optional<bool> refill_by_progress{};
  RestartRules rules{};
  std::string text{};  // the complete text of the file
};

// Throws UsageError.
RestartPolicyFile load_restart_policy(const std::filesystem::path& file);
// Parses the text of a restart policy file. `name`: the file's name for error messages. Throws UsageError. The code is pure:
// no I/O, no clock.
RestartPolicyFile parse_restart_policy(std::string_view text, const std::string& name);

}  // namespace ddprun
