// Chooses the time between checkpoints for "every": "auto". Pure; trainer/loop/checkpointing.cpp measures and calls it.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// Used until a save was measured. It is short, so that a measurement exists soon.
inline constexpr double kFirstIntervalSeconds = 30;
inline constexpr double kLeastIntervalSeconds = 5;
inline constexpr double kMostIntervalSeconds = 3600;
// Failures are rare, so a young run has had none. The estimate therefore assumes this much earlier time, and one failure right
// now.
inline constexpr double kAssumedSecondsBetweenFailures = 4 * 3600;

// Mean time between failures of a run that was observed for `observed_s` seconds and failed `failures` times.
double mean_seconds_between_failures(double observed_s, std::int64_t failures);

// Young's approximation (J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974):
// sqrt(2 * save * mtbf), in seconds. At least kLeastIntervalSeconds and twice the time of a save, at most kMostIntervalSeconds.
double checkpoint_interval_s(double save_s, double mtbf_s);

}  // namespace ddprun::trainer
