// Implementation of short_batches.hpp. It must compute the same sizes as trainer/data/loader.cpp.
#include "trainer/loop/short_batches.hpp"

#include <algorithm>
#include <limits>

#include "trainer/data/sampler.hpp"

namespace ddprun::trainer {
namespace {

// Returns the smallest number of samples in a forward pass for a global batch of `size` samples.
std::int64_t min_of_batch(const TrainConfig& config, std::int64_t size, int world) {
  const std::int64_t largest_share = share_size(size, world, 0);
  const std::int64_t micro = config.micro_batch_size > 0 ? config.micro_batch_size : largest_share;
  if (config.model.sync_batch_norm) {
    // Number of samples in all passes of rank 0 except its last pass. Rank 0 has the most samples.
    const std::int64_t before_last = (largest_share - 1) / micro * micro;
    std::int64_t together = 0;
    for (int rank = 0; rank < world; ++rank) {
      together += std::clamp<std::int64_t>(share_size(size, world, rank) - before_last, 0, micro);
    }
    return together;
  }
  std::int64_t min_samples = std::numeric_limits<std::int64_t>::max();
  for (int rank = 0; rank < world; ++rank) {
    // A rank without samples runs one pass with a stand-in (one sample of weight 0).
    const std::int64_t share = std::max<std::int64_t>(1, share_size(size, world, rank));
    const std::int64_t rest = share % micro;
    min_samples = std::min({min_samples, share, rest == 0 ? micro : rest});
  }
  return min_samples;
}

std::int64_t last_batch(const RunLength& length) {
  const std::int64_t rest = length.samples_per_epoch % length.batch_size;
  return rest == 0 ? length.batch_size : rest;
}

}  // namespace

std::int64_t min_samples_per_pass(const TrainConfig& config, const RunLength& length, int world) {
  std::int64_t min_samples = std::numeric_limits<std::int64_t>::max();
  if (length.steps_per_epoch > 1) min_samples = min_of_batch(config, length.batch_size, world);
  if (length.total_steps >= length.steps_per_epoch) {
    min_samples = std::min(min_samples, min_of_batch(config, last_batch(length), world));
  }
  return min_samples;
}

std::string short_batch_problem(const TrainConfig& config, const RunLength& length, int world, std::int64_t smallest) {
  const std::int64_t min_samples = min_samples_per_pass(config, length, world);
  if (min_samples >= smallest) return "";
  return "batch norm needs at least " + std::to_string(smallest) + " samples per forward pass in training, but with " +
         std::to_string(length.samples_per_epoch) + " training samples, batch_size " + std::to_string(length.batch_size) +
         (config.micro_batch_size > 0 ? ", micro_batch_size " + std::to_string(config.micro_batch_size) : "") + " and " +
         std::to_string(world) + (world == 1 ? " worker" : " workers") + " the smallest pass has " +
         std::to_string(min_samples) + ". The last batch of an epoch has " + std::to_string(last_batch(length)) + " samples" +
         ". Choose another batch_size or micro_batch_size, or set data.train_samples to a multiple of batch_size";
}

}  // namespace ddprun::trainer
