// Whether a run would give a model fewer samples at once than it trains with. Batch norm needs two values per channel, so a
// last batch of one sample ends a run in its first epoch, with "Expected more than 1 value per channel". All sizes are known at
// the start: samples, batch_size, micro_batch_size and workers. Pure. Called by trainer/life before the first step.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/train_config.hpp"
#include "trainer/data/run_length.hpp"

namespace ddprun::trainer {

// The fewest samples of one forward pass of any rank, in all steps of the run. With sync_batch_norm the passes of all ranks
// count together.
std::int64_t fewest_samples_of_a_pass(const TrainConfig& config, const RunLength& length, int world);

// Why the run cannot train with passes of at least `smallest` samples, and what to change. Empty if it can.
std::string short_batch_problem(const TrainConfig& config, const RunLength& length, int world, std::int64_t smallest);

}  // namespace ddprun::trainer
