// Generated samples for data.type "synthetic". They show how fast a machine trains a model, and that a job runs at all, without
// files. A model can learn from them, and the more the larger they are:
//   classes  float32 [n, shape...], int64 [n]. Each number is noise of mean 0 and variance 1, plus half of such a number that
//            belongs to the class: its texture, which repeats after kTexture numbers
//   numbers  float32 [n, shape...], float32 [n, 1]: the target, of mean 0 and variance 1, is the strength of one texture
//   tokens   for a gpt or a llama, int64 [n, block] twice. Token t is followed by (7 t + 3) modulo vocab_size, or, in one case
//            of four, by any token. With p = 3/4 + 1 / (4 vocab_size) the loss on unseen data is at least
//            -p ln p - (1 - p) ln(1 / (4 vocab_size)), which is ln(vocab_size) / 4 + 0.56 for many tokens
// Philox 4x32-10 derives a sample from its index and split. The seed of the run has no effect, so runs with several seeds learn
// from the same data. The noise is the sum of two pieces of 2^20 numbers that are drawn once.
#pragma once

#include <cstdint>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

inline constexpr std::int64_t kSyntheticSamples = 10'000;  // size of a split if the config has 0
inline constexpr std::int64_t kTexture = 64;

// Uses the config alone.
Description describe_synthetic(const TrainConfig& config);

// Both splits. They share a sample only by chance.
Sources make_synthetic(const TrainConfig& config);

}  // namespace ddprun::trainer
