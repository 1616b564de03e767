// How often a checkpoint is worth its time when the config says "every": "auto". Pure; trainer/loop/checkpointing.cpp measures
// and asks.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// Before a save was measured: soon, so that there is something to go by.
inline constexpr double kFirstIntervalSeconds = 30;
inline constexpr double kLeastIntervalSeconds = 5;
inline constexpr double kMostIntervalSeconds = 3600;
// Failures are rare, so a young run has seen none: it is taken to have run that long already, and to fail next.
inline constexpr double kAssumedSecondsBetweenFailures = 4 * 3600;

// Mean time between failures of a run that was seen for `observed_s` seconds and failed `failures` times.
double mean_seconds_between_failures(double observed_s, std::int64_t failures);

// Young's approximation (J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974):
// sqrt(2 * save * mtbf), in seconds. At least kLeastIntervalSeconds and twice the time of a save, at most kMostIntervalSeconds.
double checkpoint_interval_s(double save_s, double mtbf_s);

}  // namespace ddprun::trainer
