// Handles the key optimizer.groups: checks its value, and converts it from and to JSON. keys.cpp and parse_config.cpp call
// these functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun {

struct GroupProblem {
  std::string pointer;  // relative to the array, such as "/0/lr_scale"
  std::string message;
};

// Returns the first problem in an array of groups; nullopt if there is none.
std::optional<GroupProblem> problem_in_groups(const nlohmann::json& groups);

// nlohmann/json calls these conversions. Convert an array only if problem_in_groups() has found no problem in it.
void to_json(nlohmann::json& json, const ParameterGroup& group);
void from_json(const nlohmann::json& json, ParameterGroup& group);

}  // namespace ddprun
