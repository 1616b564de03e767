// Rounds to the nearest integer without the C library's math library: ddprun does not load that library, which took 0.08 ms of
// each start.
#pragma once

#include <algorithm>

namespace ddprun {

// Rounds halves away from zero, like std::llround. A value outside ±2^62 becomes the nearer of these two limits, NaN the lower.
constexpr long long nearest(double value) {
  constexpr double kLargest = 0x1p62;
  value = value > -kLargest ? std::min(value, kLargest) : -kLargest;
  const auto whole = static_cast<long long>(value);
  const double rest = value - static_cast<double>(whole);
  return rest >= 0.5 ? whole + 1 : rest <= -0.5 ? whole - 1 : whole;
}

}  // namespace ddprun
