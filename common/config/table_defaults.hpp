// Defaults of keys that differ for data.type "table", for a config that names only its table. Internal to common/config.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun {

// The dotted names of keys and their defaults for tables, in the order of docs/tables.md. They apply to keys that the config does
// not contain.
std::vector<std::pair<std::string_view, nlohmann::json>> defaults_for_tables();

}  // namespace ddprun
