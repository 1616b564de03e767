#include "common/config/problem_list.hpp"

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/config/json_positions.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxProblemsShown = 50;

}  // namespace

void ConfigProblems::add_at(std::size_t offset, std::string message, Hint hint) {
  problems_.push_back({std::min(offset, text_.size()), std::move(message), std::move(hint)});
}

void ConfigProblems::add_override(std::size_t index, const std::string& override_text, const std::string& message, Hint hint) {
  problems_.push_back({text_.size() + 1 + index, "override '" + override_text + "': " + message, std::move(hint)});
}

std::string ConfigProblems::described(const Problem& problem) const {
  std::string out;
  if (problem.order <= text_.size()) out = name_ + ":" + line_and_column(text_, problem.order) + ": ";
  out += problem.message;
  if (problem.hint) out += problem.hint();
  return printable(out);
}

void ConfigProblems::throw_all() {
  std::stable_sort(problems_.begin(), problems_.end(), [](const Problem& a, const Problem& b) { return a.order < b.order; });
  if (problems_.size() == 1) throw UsageError(described(problems_.front()));
  std::string message = std::to_string(problems_.size()) + " errors in the config:";
  for (std::size_t i = 0; i < std::min(problems_.size(), kMaxProblemsShown); ++i) message += "\n  " + described(problems_[i]);
  if (problems_.size() > kMaxProblemsShown) {
    message += "\n  and " + std::to_string(problems_.size() - kMaxProblemsShown) + " more";
  }
  throw UsageError(message);
}

}  // namespace ddprun
