// The table of all keys of a train.json: name, type, range, default, description, and whether the key may change within a run
// directory. The code that parses, prints and compares configs uses this table, and so do the JSON Schema and the reference in
// docs/configuration.md. So a new key only needs an entry in keys.cpp and a member in train_config.hpp. Only common/config uses
// this file.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

struct BoolKind {};
struct IntegerKind {
  std::int64_t min = 0;
  std::int64_t max = std::int64_t{1} << 53;  // the largest limit below which every JSON parser represents integers exactly
  bool nullable = false;                     // null is accepted and means "not given"
};
struct NumberKind {
  double min = 0;
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is invalid
  bool below_max = false;  // max itself is invalid
  bool nullable = false;   // null is accepted and means "not given"
};
struct TextKind {
  bool may_be_empty = false;
  bool name_only = false;  // the text must match kNamePattern
  bool path = false;       // if relative, the path becomes absolute when the config is read
};
struct NameKind {  // a string that is one of `names`
  std::vector<std::string_view> names;
};
struct IntegerListKind {  // the list must not be empty
  std::int64_t min = 1;
  std::int64_t max = 1'000'000'000;
};
struct NumberPairKind {  // for each number x: min <= x < max
  double min = 0;
  double max = 1;
};
struct TextListKind {         // may be empty
  bool allows_empty = false;  // true if the strings of the list may be empty
};
struct ParameterGroupsKind {};  // an array of ParameterGroup (common/config/parameter_groups.hpp)
using Kind = std::variant<BoolKind, IntegerKind, NumberKind, TextKind, NameKind, IntegerListKind, NumberPairKind, TextListKind,
                          ParameterGroupsKind>;

inline constexpr std::string_view kNamePattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$";
inline constexpr std::int64_t kMaxList = 1000;  // maximum number of entries in a list

// Optional properties of a key. In an entry of the table in keys.cpp they follow the description.
struct KeyTraits {
  bool required = false;
  bool may_change = false;   // true if the value may change within one run directory
  bool job_wide = false;     // for a key with may_change: all nodes need the same value, because collectives depend on it
  bool added_later = false;  // some run directories are older than this key, so the config digest omits its default value
  // values of the section's key "type" for which this key exists; all values if the list is empty
  std::vector<std::string_view> section_types{};
  std::string default_text{};  // a description of the default, if it is not a single value
};

struct Key : KeyTraits {
  std::string section;  // such as "optimizer" or "data.augment"; empty for a top-level key
  std::string name;
  Kind kind;
  std::string doc;
  std::function<nlohmann::json(const TrainConfig&)> get{};
  std::function<void(TrainConfig&, const nlohmann::json&)> set{};  // the caller has checked the value with accepts()

  // Returns true if the key exists for this value of the section's key "type".
  bool exists_for(const nlohmann::json& type) const;
  std::string dotted() const { return section.empty() ? name : section + "." + name; }
  std::string pointer() const;
};

// Returns all built-in keys, in the order of printing. The keys of one section are adjacent.
const std::vector<Key>& config_keys();

// keys_with() returns all built-in keys, followed by the keys of a custom worker program in the section "task". You can use
// the result with every config that has the same task keys.
inline constexpr std::string_view kTaskSection = "task";
std::vector<Key> keys_with(const TaskConfig& task);
// Returns a config in which all keys have their default values.
TrainConfig defaults_with(const TaskConfig& task);

struct Section {
  std::string name;  // dotted name; "" for the top level
  std::string doc;
};
const std::vector<Section>& config_sections();
std::vector<Section> sections_with(const TaskConfig& task);

// Returns the built-in key with that dotted name; nullptr if unknown.
const Key* find_key(std::string_view dotted);

// Returns true if the key has an effect in this config. For example, "momentum" has an effect only for the optimizer type sgd.
bool applies(const Key& key, const TrainConfig& config);

// Returns the valid values of a kind, for messages: "an integer from 1", "a number above 0 and below 1", "\"sgd\" or
// \"adamw\"".
std::string expectation(const Kind& kind);

// Returns true for a non-empty string without null characters.
bool is_text(const nlohmann::json& value);

// Returns true if the value is of that kind and within its range.
bool accepts(const Kind& kind, const nlohmann::json& value);

}  // namespace ddprun
