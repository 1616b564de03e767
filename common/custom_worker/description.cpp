#include "common/custom_worker/description.hpp"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/json_problem.hpp"
#include "common/base/printable.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int kFormat = 1;
// The names of the key types, in the order of TaskKey::Value.
constexpr std::array<std::string_view, std::variant_size_v<TaskKey::Value>> kTypes{"boolean", "integer",  "number",
                                                                                   "string",  "integers", "strings"};

// The parser stops after this number of keys. This number exceeds the limit for a table of keys, so the table is then
// rejected.
constexpr std::size_t kMaxKeysRead = 1000;

OrderedJson key_json(const TaskKey& key) {
  OrderedJson out{{"name", key.name}, {"type", kTypes.at(key.value.index())}, {"help", key.help}};
  if (key.required) {
    out["required"] = true;
  } else {
    out["default"] = std::visit([](const auto& value) { return OrderedJson(value); }, key.value);
  }
  if (std::isfinite(key.min)) out["min"] = key.min;
  if (std::isfinite(key.max)) out["max"] = key.max;
  if (key.above_min) out["above_min"] = true;
  if (key.below_max) out["below_max"] = true;
  if (!key.choices.empty()) out["choices"] = key.choices;
  if (key.path) out["path"] = true;
  if (key.may_change) out["may_change"] = true;
  return out;
}

template <std::size_t... Index>
TaskKey::Value value_of_type(std::string_view type, const Json& value, std::index_sequence<Index...> /*all*/) {
  TaskKey::Value out;
  const bool known = ((kTypes[Index] == type &&
                       (out = value.is_null() ? TaskKey::Value(std::in_place_index<Index>)
                                              : TaskKey::Value(std::in_place_index<Index>,
                                                               value.get<std::variant_alternative_t<Index, TaskKey::Value>>()),
                        true)) ||
                      ...);
  if (!known) throw UsageError("a key has the type '" + printable(type) + "', which this ddprun does not support");
  return out;
}

TaskKey key_of(const Json& json) {
  TaskKey key;
  key.name = json.at("name").get<std::string>();
  key.required = json.value("required", false);
  const Json otherwise = key.required ? Json() : json.at("default");
  if (!key.required && otherwise.is_null())
    throw UsageError("key '" + printable(key.name) + "': expected a default value or \"required\": true, found null");
  key.value = value_of_type(json.at("type").get<std::string>(), otherwise,
                            std::make_index_sequence<std::variant_size_v<TaskKey::Value>>());
  key.help = json.at("help").get<std::string>();
  key.min = json.value("min", key.min);
  key.max = json.value("max", key.max);
  key.above_min = json.value("above_min", false);
  key.below_max = json.value("below_max", false);
  key.choices = json.value("choices", key.choices);
  key.path = json.value("path", false);
  key.may_change = json.value("may_change", false);
  return key;
}

std::string beginning_of(const std::string& text) {
  constexpr std::size_t kShown = 60;
  return "'" + printable(std::string_view(text).substr(0, kShown)) + (text.size() > kShown ? "...'" : "'");
}

}  // namespace

std::string description_json(const WorkerDescription& worker) {
  OrderedJson out{{"format", kFormat},
                  {"name", worker.name},
                  {"version", worker.version},
                  {"ddprun", worker.ddprun},
                  {"libtorch", worker.libtorch},
                  {"channel_major", worker.channel_major},
                  {"channel_minor", worker.channel_minor},
                  {"keys", OrderedJson::array()}};
  for (const TaskKey& key : worker.keys) out["keys"].push_back(key_json(key));
  return out.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

WorkerDescription parse_description(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw UsageError("expected a JSON object, found " + (text.empty() ? "nothing" : beginning_of(text)));
  try {
    if (const Json format = json.value("format", Json()); format != kFormat) {
      throw UsageError("expected \"format\": " + std::to_string(kFormat) + ", found " +
                       (format.is_null() ? "none" : printable(format.dump())));
    }
    WorkerDescription worker{.name = json.at("name").get<std::string>(),
                             .version = json.at("version").get<std::string>(),
                             .ddprun = json.at("ddprun").get<std::string>(),
                             .libtorch = json.at("libtorch").get<std::string>(),
                             .channel_major = json.at("channel_major").get<int>(),
                             .channel_minor = json.at("channel_minor").get<int>()};
    for (const Json& key : json.at("keys")) {
      if (worker.keys.size() == kMaxKeysRead) break;
      worker.keys.push_back(key_of(key));
    }
    (void)TaskConfig(worker.keys);  // this constructor throws UsageError if the table of keys is invalid
    return worker;
  } catch (const Json::exception& error) {
    throw UsageError("its JSON does not describe a worker program: " + printable(json_problem(error, text)));
  }
}

}  // namespace ddprun
