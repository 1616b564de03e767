// How long a run is and where in it a step stands. The number of finished steps is the only counter of a run; epoch, position
// in the epoch and samples used follow from it. Pure values.
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

  // Epoch of the step that comes after `finished` ones, counted from 0, and how many of its samples are used by then.
  std::int64_t epoch_of(std::int64_t finished) const { return finished / steps_per_epoch; }
  std::int64_t position_of(std::int64_t finished) const { return finished % steps_per_epoch * batch_size; }
  // Samples used since the run began.
  std::int64_t samples_after(std::int64_t finished) const {
    return epoch_of(finished) * samples_per_epoch + position_of(finished);
  }
  bool ends_epoch(std::int64_t finished) const { return finished % steps_per_epoch == 0; }
};

RunLength run_length(const TrainConfig& config, std::int64_t train_samples);

// Whether the test set is evaluated when this many steps are finished: at the epochs and the steps that the config asks for,
// and at the end.
bool evaluates_after(const RunLength& length, const TrainConfig& config, std::int64_t finished);
// The same without the end: what a longer run would evaluate too.
bool evaluates_by_schedule(const RunLength& length, const TrainConfig& config, std::int64_t finished);

// Whether the ranks' states are compared when this many steps are finished, when that is asked for at all: every
// ddp.compare_every_steps, wherever a checkpoint is due by its step, and at the end.
bool compares_after(const RunLength& length, const TrainConfig& config, std::int64_t finished);

// Whether this step's figures are logged: the first of the run, every log.every_steps, and the last.
bool logs_after(const RunLength& length, const TrainConfig& config, std::int64_t finished);

}  // namespace ddprun::trainer
