#include "trainer/loop/interval.hpp"

#include <algorithm>
#include <cmath>

namespace ddprun::trainer {

double mean_seconds_between_failures(double observed_s, std::int64_t failures) {
  return (std::max(observed_s, 0.0) + kAssumedSecondsBetweenFailures) / (static_cast<double>(failures) + 1);
}

double checkpoint_interval_s(double save_s, double mtbf_s) {
  // The interval is at least twice the time of a save, even if that exceeds the longest interval.
  const double least = std::max(kLeastIntervalSeconds, 2 * save_s);
  return std::max(least, std::min(kMostIntervalSeconds, std::sqrt(2 * save_s * mtbf_s)));
}

}  // namespace ddprun::trainer
