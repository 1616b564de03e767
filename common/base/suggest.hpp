// Makes the text "Did you mean 'x'?" for messages: it finds the valid name that is most similar to a mistyped name. The code
// is pure: no I/O, no clock.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

// Returns the candidate with the smallest edit distance from `typed`. Upper and lower case are equal, and a dash equals an
// underscore. The result is empty if each candidate's distance exceeds max(2, length of `typed` / 3).
std::string closest_name(std::string_view typed, std::span<const std::string_view> candidates);

// Returns " Did you mean 'x'?", or an empty text if no candidate is similar.
std::string did_you_mean(std::string_view typed, std::span<const std::string_view> candidates);

}  // namespace ddprun
