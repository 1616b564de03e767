// The table of all keys of a train.json: name, type, range, default, meaning, and whether it may change within a run directory.
// Reading, printing, comparing, the JSON Schema and the reference in docs/configuration.md are all generated from it. So a new
// key is one entry in keys.cpp and one member in train_config.hpp. Internal to common/config.
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
  std::int64_t max = std::int64_t{1} << 53;  // every JSON reader represents integers up to this exactly
  bool nullable = false;                     // null is accepted and means "not given"
};
struct NumberKind {
  double min = 0;
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is refused
  bool below_max = false;  // max itself is refused
  bool nullable = false;   // null is accepted and means "not given"
};
struct TextKind {
  bool may_be_empty = false;
  bool name_only = false;  // only characters of kNamePattern
  bool path = false;       // a relative path becomes absolute when it is read
};
struct NameKind {  // one of a few names
  std::vector<std::string_view> names;
};
struct IntegerListKind {  // must not be empty
  std::int64_t min = 1;
  std::int64_t max = 1'000'000'000;
};
struct NumberPairKind {  // each number in min <= x < max
  double min = 0;
  double max = 1;
};
struct TextListKind {          // may be empty
  bool of_empty_ones = false;  // true if its strings may be empty
};
struct ParameterGroupsKind {};  // common/config/parameter_groups.hpp
using Kind = std::variant<BoolKind, IntegerKind, NumberKind, TextKind, NameKind, IntegerListKind, NumberPairKind, TextListKind,
                          ParameterGroupsKind>;

inline constexpr std::string_view kNamePattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$";
inline constexpr std::int64_t kMaxList = 1000;  // entries of a list

struct Key {
  std::string section;  // "optimizer", "data.augment"; empty for a top-level key
  std::string name;
  Kind kind;
  std::string doc;
  bool required = false;
  bool may_change = false;                 // within one run directory
  bool of_whole_job = false;               // if it may change: all nodes need the same value, since collectives depend on it
  bool added_later = false;                // newer than existing run directories: its default does not change the digest
  std::vector<std::string_view> of_types;  // the section's types that have this key; empty: all
  std::string default_text;                // set if the default is not a single value
  std::function<nlohmann::json(const TrainConfig&)> get;
  std::function<void(TrainConfig&, const nlohmann::json&)> set;  // takes a value that problem_with() accepted

  std::string dotted() const { return section.empty() ? name : section + "." + name; }
  std::string pointer() const;
};

// The keys in the order of printing; keys of one section are adjacent.
const std::vector<Key>& config_keys();

// All of these keys, followed by those of a custom worker program in the section "task". The entries are for configs with the
// same table, which must outlive them.
inline constexpr std::string_view kTaskSection = "task";
std::vector<Key> keys_with(const TaskConfig& task);
// A config with default values for all keys.
TrainConfig defaults_with(const TaskConfig& task);

struct Section {
  std::string name;  // dotted; empty: the top level
  std::string doc;
};
const std::vector<Section>& config_sections();
std::vector<Section> sections_with(const TaskConfig& task);

// The built-in key with that dotted name, or nullptr.
const Key* find_key(std::string_view dotted);

// True if the key has a meaning in this config ("momentum" only has one for sgd).
bool applies(const Key& key, const TrainConfig& config);

// "an integer from 1", "a number above 0 and below 1", "\"sgd\" or \"adamw\"".
std::string expectation(const Kind& kind);

// A non-empty string without zero characters.
bool is_text(const nlohmann::json& value);

// True if the value is of that kind and within its range.
bool accepts(const Kind& kind, const nlohmann::json& value);

}  // namespace ddprun
