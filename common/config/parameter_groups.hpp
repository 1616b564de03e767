// The value of optimizer.groups: its checks, and its conversion from and to JSON. keys.cpp and parse_config.cpp call it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

struct GroupProblem {
  std::string pointer;  // relative to the array: "/0/lr_scale"
  std::string message;
};

// The first problem in an array of groups.
std::optional<GroupProblem> problem_in_groups(const nlohmann::json& groups);

// The array must have no problem.
std::vector<ParameterGroup> groups_from_json(const nlohmann::json& groups);
nlohmann::json groups_to_json(const std::vector<ParameterGroup>& groups);

}  // namespace ddprun
