// Implementation of task_keys.hpp. It also converts the keys of a worker program to entries of the table of all keys
// (keys.hpp).
#include "common/config/task_keys.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <type_traits>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/overloaded.hpp"
#include "common/base/printable.hpp"
#include "common/config/keys.hpp"

namespace ddprun {
namespace {

using Value = TaskKey::Value;

constexpr std::size_t kMaxTaskKeys = 200;
constexpr std::size_t kLongestName = 60;
constexpr std::size_t kLongestHelp = 1000;
constexpr double kLargestInteger = 9007199254740992;  // 2^53, equal to IntegerKind::max

bool is_key_name(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !name.empty() && name.size() <= kLongestName && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

IntegerKind integers_of(const TaskKey& key) {
  const double min = std::max(key.min, -kLargestInteger), max = std::min(key.max, kLargestInteger);
  // the casts round toward zero, so a fractional limit such as min = 0.5 allows one more integer
  IntegerKind kind{.min = static_cast<std::int64_t>(min), .max = static_cast<std::int64_t>(max)};
  if (static_cast<double>(kind.min) < min) ++kind.min;
  if (static_cast<double>(kind.max) > max) --kind.max;
  return kind;
}

Kind kind_of_key(const TaskKey& key) {
  return std::visit(Overloaded{[](bool) -> Kind { return BoolKind{}; }, [&](std::int64_t) -> Kind { return integers_of(key); },
                               [&](double) -> Kind {
                                 return NumberKind{
                                     .min = key.min, .max = key.max, .above_min = key.above_min, .below_max = key.below_max};
                               },
                               [&](const std::string&) -> Kind {
                                 if (!key.choices.empty()) return NameKind{{key.choices.begin(), key.choices.end()}};
                                 return TextKind{.may_be_empty = !key.required, .path = key.path};
                               },
                               [&](const std::vector<std::int64_t>&) -> Kind {
                                 return IntegerListKind{integers_of(key).min, integers_of(key).max};
                               },
                               [](const std::vector<std::string>&) -> Kind { return TextListKind{}; }},
                    key.value);
}

nlohmann::json json_of(const Value& value) {
  return std::visit([](const auto& held) { return nlohmann::json(held); }, value);
}

// Returns the problem in the definition of a key; empty if there is none.
std::string fault_of(const TaskKey& key) {
  const bool number = std::holds_alternative<double>(key.value);
  const bool counts =
      std::holds_alternative<std::int64_t>(key.value) || std::holds_alternative<std::vector<std::int64_t>>(key.value);
  const bool text = std::holds_alternative<std::string>(key.value);
  if (!is_key_name(key.name)) {
    return "expected a name of letters, digits and '_' that starts with a letter, at most " + std::to_string(kLongestName) +
           " characters";
  }
  if (key.help.empty() || key.help.size() > kLongestHelp || printable(key.help) != key.help) {
    return "expected a one-line description in `help`, at most " + std::to_string(kLongestHelp) + " bytes";
  }
  if (!number && !counts && (std::isfinite(key.min) || std::isfinite(key.max))) return "only numbers can have min and max";
  if (!number && (key.above_min || key.below_max))
    return "above_min and below_max are only for keys with a floating-point value";
  if (!text && (!key.choices.empty() || key.path)) return "only strings can have choices or be paths";
  if (key.path && !key.choices.empty()) return "a path cannot have choices";
  if (!(key.min <= key.max)) return "min must not be above max";
  const Kind kind = kind_of_key(key);
  if (!key.required && !accepts(kind, json_of(key.value))) {
    return "expected a default that is " + expectation(kind) + ", found " +
           json_of(key.value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return "";
}

}  // namespace

TaskConfig::TaskConfig(std::vector<TaskKey> keys) {
  if (keys.size() > kMaxTaskKeys) {
    throw UsageError("the worker program's table has " + std::to_string(keys.size()) + " keys; at most " +
                     std::to_string(kMaxTaskKeys) + " are allowed");
  }
  std::set<std::string_view> names;
  for (const TaskKey& key : keys) {
    std::string fault = fault_of(key);
    if (fault.empty() && !names.insert(key.name).second) fault = "it is defined twice";
    if (!fault.empty()) throw UsageError("key '" + printable(key.name) + "' of the worker program's table: " + fault);
    values_.push_back(key.value);
  }
  keys_ = std::make_shared<const std::vector<TaskKey>>(std::move(keys));
}

const std::vector<TaskKey>& TaskConfig::keys() const {
  static const std::vector<TaskKey> kNone;
  return keys_ ? *keys_ : kNone;
}

const Value* TaskConfig::find(std::string_view name) const {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (keys()[i].name == name) return &values_[i];
  }
  return nullptr;
}

void TaskConfig::set(std::string_view name, Value value) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (keys()[i].name != name) continue;
    values_[i] = std::move(value);
    return;  // names are unique
  }
}

TaskConfig TaskConfig::defaults() const {
  TaskConfig out;
  out.keys_ = keys_;
  for (const TaskKey& key : keys()) out.values_.push_back(key.value);
  return out;
}

template <class Type>
const Type& TaskConfig::of_type(std::string_view name, const char* what) const {
  const Value* const value = find(name);
  if (value != nullptr) {
    if (const auto* held = std::get_if<Type>(value)) return *held;
  }
  throw InternalError("the worker program reads the key task." + std::string(name) + " as " + what +
                      ", but its table of keys " + (value == nullptr ? "does not contain it" : "defines it with another type"));
}

bool TaskConfig::flag(std::string_view name) const {
  return of_type<bool>(name, "a boolean");
}
std::int64_t TaskConfig::integer(std::string_view name) const {
  return of_type<std::int64_t>(name, "an integer");
}
double TaskConfig::number(std::string_view name) const {
  return of_type<double>(name, "a number");
}
const std::string& TaskConfig::text(std::string_view name) const {
  return of_type<std::string>(name, "a string");
}
const std::vector<std::int64_t>& TaskConfig::integers(std::string_view name) const {
  return of_type<std::vector<std::int64_t>>(name, "a list of integers");
}
const std::vector<std::string>& TaskConfig::texts(std::string_view name) const {
  return of_type<std::vector<std::string>>(name, "a list of strings");
}

// Each returned key finds its value by name (its functions get() and set()). So you can use these keys with every config that
// has the same task keys.
std::vector<Key> keys_with(const TaskConfig& task) {
  std::vector<Key> out = config_keys();
  for (const TaskKey& own : task.keys()) {
    Key key{};
    key.section = kTaskSection;
    key.name = own.name;
    key.kind = kind_of_key(own);
    key.doc = own.help;
    key.required = own.required;
    key.may_change = own.may_change;
    key.job_wide = !own.path;
    key.added_later = true;
    key.get = [name = own.name](const TrainConfig& config) {
      const Value* const value = config.task.find(name);
      return value == nullptr ? nlohmann::json() : json_of(*value);
    };
    key.set = [name = own.name, type = own.value](TrainConfig& config, const nlohmann::json& json) {
      config.task.set(name,
                      std::visit([&](const auto& held) -> Value { return json.get<std::decay_t<decltype(held)>>(); }, type));
    };
    out.push_back(std::move(key));
  }
  return out;
}

std::vector<Section> sections_with(const TaskConfig& task) {
  std::vector<Section> out = config_sections();
  if (!task.empty()) out.push_back({std::string(kTaskSection), "The keys of this worker program."});
  return out;
}

TrainConfig defaults_with(const TaskConfig& task) {
  TrainConfig config;
  config.task = task.defaults();
  return config;
}

}  // namespace ddprun
