// Prepares a rank's micro-batches ahead of the training loop in one thread of its own: sample, augment, normalise, cut into
// micro-batches. For a GPU they are normalised there (upload.hpp). Augmentation is keyed by (seed, epoch, sample), so a batch
// is the same whoever makes it and whenever.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/dataset.hpp"

namespace ddprun::trainer {

struct MicroBatch {
  at::Tensor images;  // [n, channels, height, width], on the CPU
  at::Tensor labels;  // int64 [n]
};

enum class Pictures {
  kNormalised,   // float32, for the CPU
  kPinnedBytes,  // uint8 as on disk, after crop and mirror, in memory that a GPU copies from by itself: a quarter of the bytes
};

// One rank's share of one global batch.
struct Share {
  std::int64_t step = 0;         // counted from 0 over the whole run
  std::int64_t epoch = 0;        // counted from 0
  std::int64_t position = 0;     // of the global batch's first sample within the epoch
  std::int64_t global_size = 0;  // samples of the global batch, all ranks together
  std::int64_t own_size = 0;     // samples of this share; 0 is possible in a ragged last batch
  std::vector<std::int64_t> samples;
  // At least one: a share of 0 samples has one micro-batch with sample 0 of the set, to be weighted 0.
  std::vector<MicroBatch> micro_batches;
};

struct LoaderOptions {
  std::int64_t batch_size = 0;        // global
  std::int64_t micro_batch_size = 0;  // 0: whole share in one
  std::int64_t prefetch = 4;
  std::uint64_t seed = 0;
  AugmentConfig augment{};
  int world = 1;
  int rank = 0;
  Pictures pictures = Pictures::kNormalised;
};

class Loader {
 public:
  // Begins with step `first_step` of the run and ends before `last_step`. The data set must outlive the loader.
  Loader(const Dataset& data, Normalization normalization, LoaderOptions options, std::int64_t first_step,
         std::int64_t last_step);
  ~Loader();  // stops the thread without waiting for a full queue
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next step's share. Blocks until it is ready; rethrows what the thread threw. Throws std::logic_error past last_step.
  Share next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Test samples [first, last) as one micro-batch, not augmented.
MicroBatch evaluation_batch(const Dataset& data, Normalization normalization, std::int64_t first, std::int64_t last,
                            Pictures pictures = Pictures::kNormalised);

}  // namespace ddprun::trainer
