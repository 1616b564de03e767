// Samples that are made up and not read: what data.type "synthetic" gives. They show how fast a machine trains a model, and
// that a job runs at all, without a file. Something can be learnt of them, the more the larger they are:
//   classes  float32 [n, shape...], int64 [n]. Each number is noise of mean 0 and variance 1, plus half of such a number that
//            belongs to the class: its texture, which is repeated after kTexture of them
//   numbers  float32 [n, shape...], float32 [n, 1]: the number, of mean 0 and variance 1, is how strong one texture is
//   tokens   for a gpt or a llama, int64 [n, block] twice. After a token t comes (7 t + 3) modulo vocab_size, or, for one token
//            of four, any. With p = 3/4 + 1 / (4 vocab_size) the loss of what is new is at least
//            -p ln p - (1 - p) ln(1 / (4 vocab_size)), which is ln(vocab_size) / 4 + 0.56 for many tokens
// A sample is that of its number and its split: Philox 4x32-10 says what it is. The seed of the run has no part in it, so runs
// of several seeds learn from the same data. The noise is the sum of two pieces of 2^20 numbers that are drawn once.
#pragma once

#include <cstdint>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

inline constexpr std::int64_t kSyntheticSamples = 10'000;  // of a split for which the config has 0
inline constexpr std::int64_t kTexture = 64;

// From the config alone.
Description describe_synthetic(const TrainConfig& config);

// Both splits, which have no sample in common but by chance.
Sources make_synthetic(const TrainConfig& config);

}  // namespace ddprun::trainer
