// Checks before the first step whether a forward pass of the run would have too few samples for the model. Batch norm needs at
// least two values per channel. Without the check, a run whose last batch has one sample would fail at the end of the first
// epoch with "Expected more than 1 value per channel". The check can be made at the start, because the sizes of all batches
// follow from the number of samples, batch_size, micro_batch_size and the number of workers. trainer/life calls this code. The
// code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/train_config.hpp"
#include "trainer/data/run_length.hpp"

namespace ddprun::trainer {

// Returns the smallest number of samples in a forward pass, over all ranks and steps of the run. With sync_batch_norm, batch
// norm uses the samples of all ranks, so their simultaneous passes count as one.
std::int64_t min_samples_per_pass(const TrainConfig& config, const RunLength& length, int world);

// Returns an error message with possible corrections if some forward pass has fewer than `smallest` samples. Returns an empty
// string otherwise.
std::string short_batch_problem(const TrainConfig& config, const RunLength& length, int world, std::int64_t smallest);

}  // namespace ddprun::trainer
