// --restart-policy FILE: what a team wants to be different about restarts, as JSON with comments, read as strictly as a
// train.json: all mistakes of a file are shown together, with line, column, JSON pointer and the nearest valid name. plan.cpp
// calls it; launcher/verdict/restart_policy.hpp says what the rules mean. docs/failures.md has the format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/verdict/restart_policy.hpp"

namespace ddprun {

struct RestartPolicyFile {
  std::optional<int> max_restarts{};  // --max-restarts wins
  std::optional<bool> refill_by_progress{};
  RestartRules rules{};
  std::string text{};  // as it was read
};

// Throws UsageError.
RestartPolicyFile load_restart_policy(const std::filesystem::path& file);
// The same from text; `name` stands for the file in messages. Pure.
RestartPolicyFile parse_restart_policy(std::string_view text, const std::string& name);

}  // namespace ddprun
