// The distributed sampler: which samples a rank uses in which step. Every function in this file is pure.
//
// A run may restart, lose workers, and resume with a different number of workers. Each epoch must still use each sample once,
// in the same order. A sampler with state, such as a random generator, must save and restore that state on each rank. If that
// state is lost or out of date, some samples are repeated and others skipped without any error. Padding causes the same errors
// on a small scale: PyTorch's DistributedSampler repeats or drops samples until all ranks have the same number.
//
// So the sampler has no state. The order of an epoch is torch.randperm(n), seeded with seed + epoch, as in PyTorch's
// DistributedSampler. A global batch is the slice of that order that begins at a position. Rank r of W takes every W-th sample
// of the slice, beginning with the r-th. Example: the 8 samples at positions 8 to 15.
//
//   W = 3   rank 0: 8 11 14      rank 1: 9 12 15      rank 2: 10 13
//   W = 2   rank 0: 8 10 12 14   rank 1: 9 11 13 15
//
// Both world sizes use the same global batch. A lost worker changes only which rank takes which sample, so the sums of
// gradients agree up to rounding. The number of finished steps gives the epoch and the position. So a checkpoint needs only
// one integer for the sampler.
//
// Nothing is padded or dropped, so the last batch of an epoch may be smaller. The ranks then have different numbers of
// samples, or none. An unweighted mean over ranks would give the samples of ranks with few samples more influence. So each
// rank's gradients have the weight n_r * W / B, where n_r is the number of the rank's samples and B is the size of the batch
// (docs/internals/decisions/data/sampler.md). A rank without samples takes part in the collectives with a sample of weight 0
// (loader.hpp).
//
// Mixup follows the same rule. Pairs among the samples of one rank would depend on W. So a sample is mixed with its neighbour
// in the global batch. torchvision draws one weight for a whole batch. We draw one for each sample, so that its position alone
// determines the weight. We considered an exchange of samples between ranks, but a lost worker would interrupt the exchange,
// and no code would repeat it. So each rank makes the partners itself (docs/internals/decisions/data/mixup.md).
//
// Cost: each rank computes the order of the whole epoch, 8 bytes for each sample. With mixup each sample is made twice.
// Because seed and epoch are added, two runs can have the same order: seed 3 in epoch 4 has the order of seed 7 in epoch 0. We
// tried no other order, because with this order the results can be bit-identical to Python's DDP.
#pragma once

#include <cstdint>
#include <vector>

namespace ddprun::trainer {

// Returns the indices 0 to n-1 in the order of this epoch.
std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch);

// Mixup (Zhang et al. 2018) combines each sample with a partner. Returns the partner's index in a global batch of `size`
// samples, for the sample at index `place`. The partner is the preceding sample. For the first sample, the partner is the last
// sample. Since the order of an epoch is random, the pairs are random too.
std::int64_t mixed_with(std::int64_t place, std::int64_t size);

// Mixup: returns the weight of the sample itself, from 0 to 1; its partner has 1 minus this weight. The weight is drawn from
// Beta(alpha, alpha) with Philox 4x32-10. The key is the seed, the epoch and the sample's position in the epoch.
float own_part(double alpha, std::uint64_t seed, std::int64_t epoch, std::int64_t position);

// Returns the samples that `rank` of `world` takes from the global batch order[position, position + size). The result is empty
// if size <= rank, which can occur in a smaller last batch.
std::vector<std::int64_t> share_of_batch(const std::vector<std::int64_t>& order, std::int64_t position, std::int64_t size,
                                         int world, int rank);

// Returns the number of samples that share_of_batch() returns.
std::int64_t share_size(std::int64_t size, int world, int rank);

// Returns the number of steps of an epoch: ceil(n / batch_size).
std::int64_t steps_per_epoch(std::int64_t n, std::int64_t batch_size);

// The contiguous block [first, last) of the n samples that `rank` of `world` evaluates. The blocks of all ranks cover each
// sample once, so an evaluation is exact.
struct Block {
  std::int64_t first = 0;
  std::int64_t last = 0;
};
Block evaluation_block(std::int64_t n, int world, int rank);

}  // namespace ddprun::trainer
