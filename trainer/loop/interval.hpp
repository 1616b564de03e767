// Computes the time between checkpoints for "every": "auto". Frequent saves cost training time, and with rare saves, a failure
// loses more steps. The best interval follows from the duration of a save and the mean time between failures. The code is pure
// (no I/O, no clock). trainer/loop/checkpointing.cpp measures the inputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace ddprun::trainer {

// The checkpoint interval that is used until the duration of the first save is known. It is short, so that the duration is
// known soon.
inline constexpr double kFirstIntervalSeconds = 30;
inline constexpr double kMinIntervalSeconds = 5;
inline constexpr double kMaxIntervalSeconds = 3600;
// The estimated mean time between failures assumes one more failure than was observed, and this additional time. Without this
// assumption, the estimate would be infinite for a new run, which has not failed yet.
inline constexpr double kAssumedSecondsBetweenFailures = 4 * 3600;

// Returns the estimated mean time between failures of a run that failed `failures` times in `observed_s` seconds.
inline double mean_seconds_between_failures(double observed_s, std::int64_t failures) {
  return (std::max(observed_s, 0.0) + kAssumedSecondsBetweenFailures) / (static_cast<double>(failures) + 1);
}

// Returns the best interval in seconds by Young's approximation, sqrt(2 * save * mtbf) (J. W. Young, "A first order
// approximation to the optimum checkpoint interval", CACM 17(9), 1974). It is at least kMinIntervalSeconds and at most
// kMaxIntervalSeconds.
inline double checkpoint_interval_s(double save_s, double mtbf_s) {
  // The interval is at least twice the duration of a save, even if that exceeds kMaxIntervalSeconds.
  const double least = std::max(kMinIntervalSeconds, 2 * save_s);
  return std::max(least, std::min(kMaxIntervalSeconds, std::sqrt(2 * save_s * mtbf_s)));
}

}  // namespace ddprun::trainer
