// The rules between keys of a config. parse_config.cpp checks them after each key has been checked alone.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

struct BrokenRule {
  std::string pointer;
  bool of_key = false;  // report it at the key; false: at its value
  std::string message;
};

// `failed`: pointers of wrong values, to which no rule is applied.
std::vector<BrokenRule> broken_rules(const TrainConfig& config, const std::set<std::string>& failed);

// A value as text for messages.
std::string shown(const nlohmann::json& value);

}  // namespace ddprun
