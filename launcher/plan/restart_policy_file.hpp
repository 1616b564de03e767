// --restart-policy FILE: custom rules for restarts, as JSON with comments. It is read as strictly as a train.json: all errors
// of a file are shown together, with line, column, JSON pointer and the nearest valid name. plan.cpp calls it;
// launcher/verdict/restart_policy.hpp explains the rules. docs/failures.md has the format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/verdict/restart_policy.hpp"

namespace ddprun {

struct RestartPolicyFile {
  std::optional<int> max_restarts{};  // --max-restarts takes precedence over it
  std::optional<bool> refill_by_progress{};
  RestartRules rules{};
  std::string text{};  // the file's text, unchanged
};

// Throws UsageError.
RestartPolicyFile load_restart_policy(const std::filesystem::path& file);
// The same for a text. Messages name the file as `name`. Pure.
RestartPolicyFile parse_restart_policy(std::string_view text, const std::string& name);

}  // namespace ddprun
