// The value of optimizer.groups: what is wrong with one, and its way to and from JSON. keys.cpp and parse_config.cpp call it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

struct GroupProblem {
  std::string pointer;  // from the array on: "/0/lr_scale"
  std::string message;
};

// The first thing that is wrong inside an array of groups.
std::optional<GroupProblem> problem_in_groups(const nlohmann::json& groups);

// Of an array without a problem.
std::vector<ParameterGroup> groups_from_json(const nlohmann::json& groups);
nlohmann::json groups_to_json(const std::vector<ParameterGroup>& groups);

}  // namespace ddprun
