// The keys of a worker program of one's own: its table, and what a config says for them. They stand in the section "task" of
// train.json, where they are read, checked, printed and compared as ours are. A Subject (trainer/life/subject.hpp) has the
// table, its make_task and read find the values in config.task, and `PROGRAM --describe` tells the table to ddprun.
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

  std::string name;  // letters, digits and '_', beginning with a letter
  Value value;       // the default; it also says of which type the key is
  std::string help;  // what it means, in a line
  // Of an integer, a number, and each of a list of integers.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;              // a number: min itself is refused
  bool below_max = false;              // a number: max itself is refused
  std::vector<std::string> choices{};  // a string: all that it may be; empty: any string
  bool path = false;                   // a string: a relative path counts from the config, and becomes absolute
  bool required = false;               // each config has to give it; then `value` says nothing but the type
  bool may_change = false;             // when a run resumes: what is trained does not depend on it
  bool operator==(const TaskKey&) const = default;
};

class TaskConfig {
 public:
  TaskConfig() = default;  // of a program without keys of its own
  // Each key has its default. Throws UsageError naming the key when the table is wrong: a name that is there twice, a default
  // out of its range.
  explicit TaskConfig(std::vector<TaskKey> keys);

  // The value of that key. Throws InternalError when the table has no such key, or one of another type.
  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;  // of a path: absolute
  const std::vector<std::int64_t>& integers(std::string_view name) const;
  const std::vector<std::string>& texts(std::string_view name) const;

  const std::vector<TaskKey>& keys() const;
  bool empty() const { return keys().empty(); }
  // Null: there is no such key.
  const TaskKey::Value* find(std::string_view name) const;
  // A value of the key's type.
  void set(std::string_view name, TaskKey::Value value);
  // The same table, each key with its default.
  TaskConfig defaults() const;

 private:
  template <class Type>
  const Type& of_type(std::string_view name, const char* what) const;

  std::shared_ptr<const std::vector<TaskKey>> keys_;  // null: none
  std::vector<TaskKey::Value> values_;                // in the order of keys_
};

}  // namespace ddprun
