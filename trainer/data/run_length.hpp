// The length of a run, and the position of a step in it. A run's only counter is the number of finished steps. Epoch, position
// in the epoch and used samples follow from it. Pure values.
#pragma once

#include <cstdint>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

struct RunLength {
  std::int64_t samples_per_epoch = 0;
  std::int64_t batch_size = 0;  // global
  std::int64_t epochs = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t total_steps = 0;

  // Epoch of the step after `finished` finished steps, counted from 0, and the number of its samples that are used by then.
  std::int64_t epoch_of(std::int64_t finished) const { return finished / steps_per_epoch; }
  std::int64_t position_of(std::int64_t finished) const { return finished % steps_per_epoch * batch_size; }
  // Samples used since the run began.
  std::int64_t samples_after(std::int64_t finished) const {
    return epoch_of(finished) * samples_per_epoch + position_of(finished);
  }
  bool ends_epoch(std::int64_t finished) const { return finished % steps_per_epoch == 0; }
};

RunLength run_length(const TrainConfig& config, std::int64_t train_samples);

// Whether the test set is evaluated after this many steps: at the epochs and steps of the config, and at the end.
bool evaluates_after(const RunLength& length, const TrainConfig& config, std::int64_t finished);
// The same without the evaluation at the end: a longer run has these evaluations too.
bool evaluates_by_schedule(const RunLength& length, const TrainConfig& config, std::int64_t finished);

// Whether the ranks' states are compared after this many steps, if the config enables that: every ddp.compare_every_steps,
// where a checkpoint is due by its step, and at the end.
bool compares_after(const RunLength& length, const TrainConfig& config, std::int64_t finished);

// Whether this step's metrics are logged: the first step of the run, every log.every_steps, and the last.
bool logs_after(const RunLength& length, const TrainConfig& config, std::int64_t finished);

}  // namespace ddprun::trainer
