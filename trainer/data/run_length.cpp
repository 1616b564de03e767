#include "trainer/data/run_length.hpp"

#include <algorithm>

#include "trainer/data/sampler.hpp"

namespace ddprun::trainer {

RunLength run_length(const TrainConfig& config, std::int64_t train_samples) {
  RunLength length;
  length.samples_per_epoch = train_samples;
  length.batch_size = config.batch_size;
  length.steps_per_epoch = steps_per_epoch(train_samples, config.batch_size);
  length.epochs = std::max(config.epochs, (config.min_steps + length.steps_per_epoch - 1) / length.steps_per_epoch);
  length.total_steps = length.epochs * length.steps_per_epoch;
  if (config.max_steps > 0) length.total_steps = std::min(length.total_steps, config.max_steps);
  return length;
}

bool evaluates_after(const RunLength& length, const TrainConfig& config, std::int64_t finished) {
  return finished >= length.total_steps || evaluates_by_schedule(length, config, finished);
}

bool evaluates_by_schedule(const RunLength& length, const TrainConfig& config, std::int64_t finished) {
  if (config.eval_every_steps > 0 && finished % config.eval_every_steps == 0) return true;
  if (config.eval_every_epochs == 0 || !length.ends_epoch(finished)) return false;
  return length.epoch_of(finished) % config.eval_every_epochs == 0;
}

bool compares_after(const RunLength& length, const TrainConfig& config, std::int64_t finished) {
  const std::int64_t every = config.ddp.compare_every_steps;
  if (every == 0) return false;
  if (finished >= length.total_steps || finished % every == 0) return true;
  if (config.checkpoint.every_steps > 0 && finished % config.checkpoint.every_steps == 0) return true;
  return config.checkpoint.keep_best > 0 && evaluates_after(length, config, finished);
}

bool logs_after(const RunLength& length, const TrainConfig& config, std::int64_t finished) {
  return finished == 1 || finished == length.total_steps || finished % config.log.every_steps == 0;
}

}  // namespace ddprun::trainer
