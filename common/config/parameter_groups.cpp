#include "common/config/parameter_groups.hpp"

#include <array>
#include <cmath>
#include <string_view>

#include "common/base/suggest.hpp"
#include "common/config/keys.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;

std::string problem_with_member(const std::string& name, const Json& value) {
  if (name == "parameters") {
    return is_text(value) ? "" : "expected a pattern of parameter names, such as \"*.bias\", found " + value.dump();
  }
  if (name != "lr_scale" && name != "weight_decay") {
    constexpr std::array<std::string_view, 3> kMembers{"parameters", "lr_scale", "weight_decay"};
    return "unknown key '" + name + "'." + did_you_mean(name, kMembers);
  }
  const bool good = value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0;
  return good ? "" : "expected a number of at least 0, found " + value.dump();
}

}  // namespace

std::optional<GroupProblem> problem_in_groups(const Json& groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string at = "/" + std::to_string(i);
    const Json& group = groups[i];
    if (!group.is_object()) return GroupProblem{at, "expected an object in braces, found " + group.dump()};
    for (const auto& [name, value] : group.items()) {
      const std::string problem = problem_with_member(name, value);
      if (!problem.empty()) return GroupProblem{std::string(at).append("/").append(name), problem};
    }
    if (!group.contains("parameters")) {
      return GroupProblem{at, "key 'parameters' is missing: set it to a pattern of parameter names, such as \"*.bias\""};
    }
  }
  return std::nullopt;
}

void to_json(Json& json, const ParameterGroup& group) {
  json = {{"parameters", group.parameters}, {"lr_scale", group.lr_scale}};
  if (group.weight_decay) json["weight_decay"] = *group.weight_decay;
}

void from_json(const Json& json, ParameterGroup& group) {
  group.parameters = json.at("parameters").get<std::string>();
  group.lr_scale = json.value("lr_scale", group.lr_scale);
  if (json.contains("weight_decay")) group.weight_decay = json["weight_decay"].get<double>();
}

}  // namespace ddprun
