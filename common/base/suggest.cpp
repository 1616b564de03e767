// Implementation of suggest.hpp. An unknown option, key or value has a few dozen candidates, so an edit distance with quadratic
// cost is fast enough.
#include "common/base/suggest.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ddprun {
namespace {

// Converts a letter to lower case and a dash to an underscore, so that these differences do not count as typing errors.
char folded(char c) {
  if (c == '-') return '_';
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Returns the smallest number of insertions, deletions, replacements and swaps of neighboring characters that turns `a` into
// `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = folded(a[i - 1]) == folded(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0u : 1u)});
      const bool swapped = i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// Names longer than this limit get no suggestion. The limit bounds the quadratic cost for hostile input.
constexpr std::size_t kLongestName = 256;

}  // namespace

std::string closest_name(std::string_view typed, std::span<const std::string_view> candidates) {
  if (typed.size() > kLongestName) return "";
  const std::size_t limit = std::max<std::size_t>(2, typed.size() / 3);
  std::string_view best;
  std::size_t best_distance = limit + 1;
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > kLongestName) continue;
    const std::size_t distance = edit_distance(typed, candidate);
    // Two short words can be within the limit even if they have no common character. A candidate without a common character
    // would not help, so it is skipped.
    if (distance >= std::max(typed.size(), candidate.size())) continue;
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return std::string(best);
}

std::string did_you_mean(std::string_view typed, std::span<const std::string_view> candidates) {
  const std::string name = closest_name(typed, candidates);
  return name.empty() ? "" : " Did you mean '" + name + "'?";
}

}  // namespace ddprun
