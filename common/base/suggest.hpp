// "Did you mean": the nearest valid name for a mistyped one. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

// The candidate with the smallest edit distance (dash and underscore are equal), or empty if all distances exceed max(2, length
// / 3).
std::string nearest(std::string_view typed, std::span<const std::string_view> candidates);

// " Did you mean 'x'?" or empty.
std::string did_you_mean(std::string_view typed, std::span<const std::string_view> candidates);

}  // namespace ddprun
