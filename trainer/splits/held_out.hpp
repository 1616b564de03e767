// Holds out a part of the training samples for validation, as data.validation asks: chooses the samples and makes both parts
// sources. Pure: the choice depends only on the seed and the number of samples, not on workers or restarts.
#pragma once

#include <cstdint>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

struct SplitSamples {
  std::vector<std::int64_t> train;       // both lists are in ascending order
  std::vector<std::int64_t> validation;  // empty if nothing is held out
};

// Chooses the held-out samples: data.validation.samples of `samples`, or that fraction, rounded. They are the first of a
// permutation by the seed. Throws UsageError if one part would be empty.
SplitSamples split_samples(const TrainConfig& config, std::int64_t samples);

// Moves the held-out part from `train` to `validation`. The random draws of a sample still have its index in the whole set as
// key. Throws the errors of split_samples().
Sources hold_out(Sources data, const TrainConfig& config);

}  // namespace ddprun::trainer
