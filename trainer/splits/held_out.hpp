// A part of the training samples that is held out to be evaluated on, as data.validation asks for: which samples, and both
// parts as sources. Pure: it depends on the seed and on the number of samples alone, not on workers or restarts.
#pragma once

#include <cstdint>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

struct SplitSamples {
  std::vector<std::int64_t> train;       // in ascending order, as the other one
  std::vector<std::int64_t> validation;  // empty where nothing is held out
};

// Which of `samples` training samples are held out: data.validation.samples of them, or that fraction rounded to the nearest;
// they are the first ones of a permutation by the seed. Throws UsageError where that leaves none on one side.
SplitSamples split_samples(const TrainConfig& config, std::int64_t samples);

// The same data, of which the part is no longer in `train` but in `validation`. Draws stay keyed by the sample's number in the
// whole. Throws as split_samples().
Sources hold_out(Sources data, const TrainConfig& config);

}  // namespace ddprun::trainer
