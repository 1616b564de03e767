// Splits the training samples into a training part and a validation part, as configured by data.validation. The split depends
// only on the seed and the number of samples. So it stays the same after a restart and with a different number of workers.
#pragma once

#include <cstdint>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

struct SplitSamples {
  std::vector<std::int64_t> train;       // both lists are in ascending order
  std::vector<std::int64_t> validation;  // empty if the config holds out no samples
};

// Chooses the held-out samples. Their number is data.validation.samples, or data.validation.fraction of `samples`, rounded.
// They are the first samples of a permutation of all samples that depends on the seed. Throws UsageError if no training or no
// validation sample would remain.
SplitSamples split_samples(const TrainConfig& config, std::int64_t samples);

// Moves the held-out samples from `data.train` to `data.validation`. Returns `data` unchanged if the config holds out no
// samples. The random augmentation of a sample does not change, because it depends on the sample's index in the whole set.
// Throws the errors of split_samples().
Sources hold_out(Sources data, const TrainConfig& config);

}  // namespace ddprun::trainer
