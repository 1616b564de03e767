// Finds out before the start whether a run would pass too few samples to the model at once. Batch norm needs two values per
// channel. So a last batch of one sample would end the run in its first epoch, with "Expected more than 1 value per channel".
// All sizes are known at the start: samples, batch_size, micro_batch_size and workers. Pure. Called by trainer/life before the
// first step.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/train_config.hpp"
#include "trainer/data/run_length.hpp"

namespace ddprun::trainer {

// Returns the smallest number of samples in one forward pass of any rank, in all steps of the run. With sync_batch_norm the
// passes of all ranks count together.
std::int64_t fewest_samples_of_a_pass(const TrainConfig& config, const RunLength& length, int world);

// Returns why the run cannot train with passes of at least `smallest` samples, and the possible corrections. Empty if it can.
std::string short_batch_problem(const TrainConfig& config, const RunLength& length, int world, std::int64_t smallest);

}  // namespace ddprun::trainer
