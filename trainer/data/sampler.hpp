// Which samples a rank sees in which step: a pure function of (seed, epoch, position, world size, rank). The order of an epoch
// is torch.randperm(n) seeded with seed + epoch, as PyTorch's DistributedSampler has it; rank r of W takes every W-th position
// of each global batch, beginning with the r-th. So the order depends neither on the number of workers nor on restarts, and a
// checkpoint stores one integer. Nothing is padded or dropped: the last batch of an epoch may be smaller (decision 22).
#pragma once

#include <cstdint>
#include <vector>

namespace ddprun::trainer {

// The n sample indices in the order of that epoch.
std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch);

// Mixup (Zhang et al. 2018): the sample at `place` of a global batch of `size` is mixed with the one at this place, the one
// before it; the first with the last. The order of an epoch is random, so the pairs are.
std::int64_t mixed_with(std::int64_t place, std::int64_t size);

// How much of it stays its own: a number of the Beta(alpha, alpha) distribution, by Philox 4x32-10 with the seed and the
// sample's position within the epoch. So it depends neither on the number of workers nor on restarts.
float own_part(double alpha, std::uint64_t seed, std::int64_t epoch, std::int64_t position);

// Samples that `rank` of `world` takes of the global batch order[position, position + size). May be empty in a ragged last
// batch.
std::vector<std::int64_t> share_of_batch(const std::vector<std::int64_t>& order, std::int64_t position, std::int64_t size,
                                         int world, int rank);

// Number of samples of that share, without making it.
std::int64_t share_size(std::int64_t size, int world, int rank);

// Steps of an epoch: ceil(n / batch_size).
std::int64_t steps_per_epoch(std::int64_t n, std::int64_t batch_size);

// For exact evaluation: the contiguous block [first, last) of n samples that `rank` of `world` evaluates. Blocks cover all
// samples once.
struct Block {
  std::int64_t first = 0;
  std::int64_t last = 0;
};
Block evaluation_block(std::int64_t n, int world, int rank);

}  // namespace ddprun::trainer
