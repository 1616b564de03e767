// The table of all keys of a train.json: name, type, range, default, meaning, and whether it may change within a run directory.
// Reading, printing, comparing, the JSON Schema and the reference in docs/configuration.md are all made from it, so a new key
// is one entry in keys.cpp and one member in train_config.hpp. Internal to common/config.
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
  std::int64_t max = std::int64_t{1} << 53;  // every JSON reader keeps integers up to this exactly
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
  bool of_empty_ones = false;  // whether its strings may be empty
};
struct ParameterGroupsKind {};  // common/config/parameter_groups.hpp
using Kind = std::variant<BoolKind, IntegerKind, NumberKind, TextKind, NameKind, IntegerListKind, NumberPairKind, TextListKind,
                          ParameterGroupsKind>;

inline constexpr std::string_view kNamePattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$";
inline constexpr std::int64_t kMaxList = 1000;  // entries of a list

struct Key {
  std::string section;  // "optimizer", "data.augment"; empty for a key at the top
  std::string name;
  Kind kind;
  std::string doc;
  bool required = false;
  bool may_change = false;                 // within one run directory
  bool of_whole_job = false;               // where it may change: all nodes need the same, since exchanges follow from it
  bool added_later = false;                // than run directories that lack it: its default leaves no trace in the digest
  std::vector<std::string_view> of_types;  // the section's types that have this key; empty: all
  std::string default_text;                // set where the default isn't one value
  std::function<nlohmann::json(const TrainConfig&)> get;
  std::function<void(TrainConfig&, const nlohmann::json&)> set;  // takes a value that problem_with() accepted

  std::string dotted() const { return section.empty() ? name : section + "." + name; }
  std::string pointer() const;
};

// The keys in the order in which they are printed; keys of one section are together.
const std::vector<Key>& config_keys();

// These, and behind them in the section "task" those of a worker program of the user's own. The entries are for configs with
// the same table, which has to outlive them.
inline constexpr std::string_view kTaskSection = "task";
std::vector<Key> keys_with(const TaskConfig& task);
// A config in which every key has its default.
TrainConfig defaults_with(const TaskConfig& task);

struct Section {
  std::string name;  // dotted; empty: the top level
  std::string doc;
};
const std::vector<Section>& config_sections();
std::vector<Section> sections_with(const TaskConfig& task);

// The key of ours with that dotted name, or nullptr.
const Key* find_key(std::string_view dotted);

// Whether the key has a meaning in this config ("momentum" only has one for sgd).
bool applies(const Key& key, const TrainConfig& config);

// "an integer from 1", "a number above 0 and below 1", "\"sgd\" or \"adamw\"".
std::string expectation(const Kind& kind);

// A string that is not empty and has no zero character.
bool is_text(const nlohmann::json& value);

// Whether the value is of that kind and within its range.
bool accepts(const Kind& kind, const nlohmann::json& value);

}  // namespace ddprun
