#include "trainer/optim/name_patterns.hpp"

#include <algorithm>

#include "common/base/error.hpp"

namespace ddprun::trainer {

// Compares from left to right. At a mismatch, the newest * in the pattern matches one more character, and the comparison
// continues after that character. It is never necessary to return to an earlier *.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

std::vector<std::optional<std::size_t>> first_matches(const std::string& key, const std::vector<std::string>& patterns,
                                                      const std::vector<std::string>& names,
                                                      const std::map<std::string, std::string>& tied, const std::string& what) {
  std::vector<std::optional<std::size_t>> first(names.size());
  for (std::size_t p = 0; p < patterns.size(); ++p) {
    const auto matches_one_of = [&](const std::string& name) {
      return matches(patterns[p], name) || std::ranges::any_of(tied, [&](const auto& other) {
               return other.second == name && matches(patterns[p], other.first);
             });
    };
    bool any = false;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!matches_one_of(names[i])) continue;
      any = true;
      if (!first[i]) first[i] = p;
    }
    if (!any) throw UsageError(key + ": no " + what + " matches '" + patterns[p] + "'. The names are " + names_text(names));
  }
  return first;
}

}  // namespace ddprun::trainer
