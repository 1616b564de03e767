// The keys of a custom worker program: its table, and the values from a config. They are in the section "task" of train.json,
// where they are read, checked, printed and compared like built-in keys. A Subject (trainer/life/subject.hpp) has the table,
// and its make_task and read find the values in config.task. `PROGRAM --describe` reports the table to ddprun.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddprun {

// {.name = "noise", .value = 0.1, .help = "Standard deviation of what is added.", .min = 0}
struct TaskKey {
  using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<std::string>>;

  std::string name;  // letters, digits and '_', starting with a letter
  Value value;       // the default; it also defines the type of the key
  std::string help;  // its meaning, in one line
  // The range of an integer, a number, or each element of a list of integers.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;              // a number: min itself is refused
  bool below_max = false;              // a number: max itself is refused
  std::vector<std::string> choices{};  // a string: all allowed values; empty: any string
  bool path = false;                   // a string: a relative path is relative to the config, and becomes absolute
  bool required = false;               // each config must set it; then `value` only defines the type
  bool may_change = false;             // may change when a run resumes, since the trained model does not depend on it
  bool operator==(const TaskKey&) const = default;
};

class TaskConfig {
 public:
  TaskConfig() = default;  // for a program without additional keys
  // Sets each key to its default. Throws UsageError with the key's name if the table is wrong: a duplicate name, a default out
  // of its range.
  explicit TaskConfig(std::vector<TaskKey> keys);

  // The value of that key. Throws InternalError if the table has no such key, or if the key has another type.
  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;  // for a path: absolute
  const std::vector<std::int64_t>& integers(std::string_view name) const;
  const std::vector<std::string>& texts(std::string_view name) const;

  const std::vector<TaskKey>& keys() const;
  bool empty() const { return keys().empty(); }
  // nullptr if there is no such key.
  const TaskKey::Value* find(std::string_view name) const;
  // `value` must have the key's type.
  void set(std::string_view name, TaskKey::Value value);
  // The same table, with the default for each key.
  TaskConfig defaults() const;

 private:
  template <class Type>
  const Type& of_type(std::string_view name, const char* what) const;

  std::shared_ptr<const std::vector<TaskKey>> keys_;  // nullptr: no keys
  std::vector<TaskKey::Value> values_;                // in the order of keys_
};

}  // namespace ddprun
