// Implementation of short_batches.hpp: the sizes that trainer/data/loader.cpp makes.
#include "trainer/loop/short_batches.hpp"

#include <algorithm>
#include <limits>

#include "trainer/data/sampler.hpp"

namespace ddprun::trainer {
namespace {

// Fewest samples of one forward pass in a global batch of `size` samples.
std::int64_t fewest_of_batch(const TrainConfig& config, std::int64_t size, int world) {
  const std::int64_t largest_share = share_size(size, world, 0);
  const std::int64_t micro = config.micro_batch_size > 0 ? config.micro_batch_size : largest_share;
  if (config.model.sync_batch_norm) {
    const std::int64_t before_last = (largest_share - 1) / micro * micro;  // samples of a share in earlier passes
    std::int64_t together = 0;
    for (int rank = 0; rank < world; ++rank) {
      together += std::clamp<std::int64_t>(share_size(size, world, rank) - before_last, 0, micro);
    }
    return together;
  }
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (int rank = 0; rank < world; ++rank) {
    const std::int64_t share = std::max<std::int64_t>(1, share_size(size, world, rank));  // a rank without samples borrows one
    const std::int64_t rest = share % micro;
    fewest = std::min({fewest, share, rest == 0 ? micro : rest});
  }
  return fewest;
}

std::int64_t last_batch(const RunLength& length) {
  const std::int64_t rest = length.samples_per_epoch % length.batch_size;
  return rest == 0 ? length.batch_size : rest;
}

}  // namespace

std::int64_t fewest_samples_of_a_pass(const TrainConfig& config, const RunLength& length, int world) {
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  if (length.steps_per_epoch > 1) fewest = fewest_of_batch(config, length.batch_size, world);
  if (length.total_steps >= length.steps_per_epoch) {
    fewest = std::min(fewest, fewest_of_batch(config, last_batch(length), world));
  }
  return fewest;
}

std::string short_batch_problem(const TrainConfig& config, const RunLength& length, int world, std::int64_t smallest) {
  const std::int64_t fewest = fewest_samples_of_a_pass(config, length, world);
  if (fewest >= smallest) return "";
  return "the model trains with " + std::to_string(smallest) + " samples or more at once, as batch norm needs, but with " +
         std::to_string(length.samples_per_epoch) + " training samples, batch_size " + std::to_string(length.batch_size) +
         (config.micro_batch_size > 0 ? ", micro_batch_size " + std::to_string(config.micro_batch_size) : "") + " and " +
         std::to_string(world) + (world == 1 ? " worker" : " workers") + " a pass would have " + std::to_string(fewest) +
         ". The last batch of an epoch has " + std::to_string(last_batch(length)) +
         ". Choose another batch_size or micro_batch_size, or set data.train_samples to a multiple of batch_size";
}

}  // namespace ddprun::trainer
