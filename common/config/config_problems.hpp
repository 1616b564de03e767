// The list of what is wrong with a config, and how it is told: in the order of the file, overrides behind it, all at once.
// Places and hints are worked out for the problems that are shown only, since each takes a look at the whole text: a file of a
// hundred thousand unknown keys is refused at once. Internal to common/config.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

class ConfigProblems {
 public:
  // The text outlives this; `name` stands for the file in messages.
  ConfigProblems(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}

  using Hint = std::function<std::string()>;  // what follows the message

  void add_at(std::size_t offset, std::string message, Hint hint = {});
  void add_override(std::size_t index, const std::string& override_text, const std::string& message, Hint hint = {});

  bool empty() const { return problems_.empty(); }
  [[noreturn]] void throw_all();

 private:
  struct Problem {
    std::size_t order = 0;  // the offset in the text, overrides behind it
    std::string message;
    Hint hint;
  };

  std::string told(const Problem& problem) const;

  std::string_view text_;
  std::string name_;
  std::vector<Problem> problems_;
};

}  // namespace ddprun
