// The list of a config's errors, and its report: all together, in the order of the file, overrides last. Places and hints are
// computed only for the reported problems, since each of them scans the whole text. So a file with a hundred thousand unknown
// keys is refused quickly. Internal to common/config.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

class ConfigProblems {
 public:
  // `text` must outlive this object; `name` is the file's name in messages.
  ConfigProblems(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}

  using Hint = std::function<std::string()>;  // computes the text after the message

  void add_at(std::size_t offset, std::string message, Hint hint = {});
  void add_override(std::size_t index, const std::string& override_text, const std::string& message, Hint hint = {});

  bool empty() const { return problems_.empty(); }
  [[noreturn]] void throw_all();

 private:
  struct Problem {
    std::size_t order = 0;  // the offset in the text; overrides come after all offsets
    std::string message;
    Hint hint;
  };

  std::string told(const Problem& problem) const;

  std::string_view text_;
  std::string name_;
  std::vector<Problem> problems_;
};

}  // namespace ddprun
