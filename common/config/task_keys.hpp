// The keys of a custom worker program: their definitions, and their values in a config. The section "task" of a train.json
// contains these keys. ddprun reads, checks, prints and compares them like built-in keys. The program's Subject
// (trainer/life/subject.hpp) contains the definitions. Its functions make_task and read use the values in config.task.
// `PROGRAM --describe` reports the definitions to ddprun.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddprun {

// The definition of a key. Example: {.name = "noise", .value = 0.1, .help = "Standard deviation of the added noise.", .min = 0}
struct TaskKey {
  using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<std::string>>;

  std::string name;  // letters, digits and '_', starting with a letter
  Value value;       // the default value; its type is the type of the key
  std::string help;  // description in one line
  // The range of an integer, of a number, or of each element of a list of integers.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;              // for a number: min itself is invalid
  bool below_max = false;              // for a number: max itself is invalid
  std::vector<std::string> choices{};  // for a string: the allowed values; any string if empty
  bool path = false;                   // for a string: a path, relative to the config's folder; it becomes absolute
  bool required = false;               // each config must set the key; `value` then only defines the type
  bool may_change = false;  // true: the value may change when a run resumes, because the trained model does not depend on it
  bool operator==(const TaskKey&) const = default;
};

class TaskConfig {
 public:
  TaskConfig() = default;  // for a program without additional keys
  // Sets each key to its default. Throws UsageError with the key's name if the table is invalid, for example if a name is used
  // twice, or a default is out of its range.
  explicit TaskConfig(std::vector<TaskKey> keys);

  // These functions return the value of the key `name`. They throw InternalError if the key is unknown or has a different type.
  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;  // the result is absolute if the key is a path
  const std::vector<std::int64_t>& integers(std::string_view name) const;
  const std::vector<std::string>& texts(std::string_view name) const;

  const std::vector<TaskKey>& keys() const;
  bool empty() const { return keys().empty(); }
  // Returns the value of the key `name`; nullptr if the key is unknown.
  const TaskKey::Value* find(std::string_view name) const;
  // Sets the value of the key `name`. `value` must have the key's type.
  void set(std::string_view name, TaskKey::Value value);
  // Returns a copy in which each key has its default value.
  TaskConfig defaults() const;

 private:
  template <class Type>
  const Type& of_type(std::string_view name, const char* what) const;

  std::shared_ptr<const std::vector<TaskKey>> keys_;  // nullptr if there are no keys
  std::vector<TaskKey::Value> values_;                // the value of each key, in the order of keys_
};

}  // namespace ddprun
