// The rules that bind keys of a config to each other. parse_config.cpp asks when each key has been looked at by itself.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

struct BrokenRule {
  std::string pointer;
  bool of_key = false;  // to be shown at the key, or at its value
  std::string message;
};

// `failed`: pointers of wrong values. Nothing is concluded from these.
std::vector<BrokenRule> broken_rules(const TrainConfig& config, const std::set<std::string>& failed);

// A value as messages show it.
std::string shown(const nlohmann::json& value);

}  // namespace ddprun
