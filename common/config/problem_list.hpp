// The list of a config's errors, and the exception that reports all of them. The errors of the file come first, in the order
// of the file, and then the errors of overrides. Line numbers and hints are computed only for the reported errors, because
// each computation scans the whole text. So a file with a hundred thousand unknown keys is rejected quickly. Only
// common/config uses this file.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

class ConfigProblems {
 public:
  // `text` must outlive this object. `name` is the file's name, for messages.
  ConfigProblems(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}

  using Hint = std::function<std::string()>;  // computes text that is appended to the error message

  void add_at(std::size_t offset, std::string message, Hint hint = {});
  void add_override(std::size_t index, const std::string& override_text, const std::string& message, Hint hint = {});

  bool empty() const { return problems_.empty(); }
  [[noreturn]] void throw_all();

 private:
  struct Problem {
    std::size_t order = 0;  // the offset in the text; a larger number for an override, because overrides are reported last
    std::string message;
    Hint hint;
  };

  std::string described(const Problem& problem) const;

  std::string_view text_;
  std::string name_;
  std::vector<Problem> problems_;
};

}  // namespace ddprun
