// The length of a run, and the position of a step within the run. The only counter that a run stores is the number of finished
// steps. Epoch, position in the epoch and number of used samples are computed from that number. The code is pure: no I/O, no
// clock.
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

  // These functions describe the state after `finished` steps. They return the epoch of the next step, counted from 0, and the
  // number of samples of that epoch that are already used.
  std::int64_t epoch_of(std::int64_t finished) const { return finished / steps_per_epoch; }
  std::int64_t position_of(std::int64_t finished) const { return finished % steps_per_epoch * batch_size; }
  // Returns the number of samples used since the start of the run.
  std::int64_t samples_after(std::int64_t finished) const {
    return epoch_of(finished) * samples_per_epoch + position_of(finished);
  }
  bool ends_epoch(std::int64_t finished) const { return finished % steps_per_epoch == 0; }
};

RunLength run_length(const TrainConfig& config, std::int64_t train_samples);

// Returns whether the test set is evaluated after this many steps: at the epochs and steps that the config sets, and at the
// end.
bool evaluates_after(const RunLength& length, const TrainConfig& config, std::int64_t finished);
// Works like evaluates_after(), but does not count the evaluation at the end. So the result does not depend on the length of
// the run.
bool evaluates_by_schedule(const RunLength& length, const TrainConfig& config, std::int64_t finished);

// Returns whether the ranks compare their states after this many steps. If the config enables comparisons, the ranks compare
// every ddp.compare_every_steps steps, at each multiple of checkpoint.every_steps, and at the end. They also compare after
// each evaluation if checkpoint.keep_best is set.
bool compares_after(const RunLength& length, const TrainConfig& config, std::int64_t finished);

// Returns whether this step's metrics are logged. True for the first step of the run, every log.every_steps steps, and the last
// step.
bool logs_after(const RunLength& length, const TrainConfig& config, std::int64_t finished);

}  // namespace ddprun::trainer
