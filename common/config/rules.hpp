// Checks the rules that concern several keys of a config. parse_config.cpp calls broken_rules() after it has checked each key
// separately.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

struct BrokenRule {
  std::string pointer;
  bool at_key = false;  // true: the error is at the position of the key; false: at its value
  std::string message;
};

// Returns the rules that the config violates. `failed` contains the JSON pointers of invalid values, to which no rule is
// applied.
std::vector<BrokenRule> broken_rules(const TrainConfig& config, const std::set<std::string>& failed);

// Returns a value as text, for messages.
std::string shown(const nlohmann::json& value);

}  // namespace ddprun
