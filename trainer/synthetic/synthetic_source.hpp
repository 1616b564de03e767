// Generates samples for data.type "synthetic". No files are needed, so such samples are useful to measure the speed of a
// machine or to check that a job runs. Models can learn from these samples:
//   classes  Inputs are float32 [n, shape...], targets are int64 [n]. Each input number is noise of mean 0 and variance 1 plus
//            a number of the class's texture. A texture has kTexture numbers of standard deviation 1/2, and is repeated.
//   numbers  Inputs are float32 [n, shape...], targets are float32 [n, 1] of mean 0 and variance 1. Each input number is noise
//            plus the target times a number of one texture.
//   tokens   For gpt and llama: inputs and targets are int64 [n, block]. Three of four times, token t is followed by
//            (7 t + 3) modulo vocab_size; otherwise a random token follows. Let p = 3/4 + 1 / (4 vocab_size). The loss on
//            unseen data is then at least -p ln p - (1 - p) ln(1 / (4 vocab_size)). For a large vocabulary this is about
//            ln(vocab_size) / 4 + 0.56.
// Philox 4x32-10 generates each sample from its index and its split. The seed of the run has no effect, so runs with different
// seeds train on the same data. The noise of a sample is the sum of two pieces of a fixed array of about 2^20
// numbers.
#pragma once

#include <cstdint>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

inline constexpr std::int64_t kSyntheticSamples = 10'000;  // number of samples in a split if the config has 0
inline constexpr std::int64_t kTexture = 64;               // length of a texture

// Describes the samples without generating any.
Description describe_synthetic(const TrainConfig& config);

// Returns the training and the test split. Their samples are independent of each other.
Sources make_synthetic(const TrainConfig& config);

}  // namespace ddprun::trainer
