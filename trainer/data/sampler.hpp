// The distributed sampler: which samples a rank uses in which step. Every function in this file is pure.
//
// A run restarts, loses workers and resumes with another number of workers. Each epoch must still use each sample once, in the
// same order. A sampler with state, such as a generator, has to save and restore that state on each rank. State that is lost or
// out of step repeats some samples and skips others, and no error shows it. Padding has the same effect on a small scale:
// PyTorch's DistributedSampler repeats samples, or drops some, until all ranks have the same number.
//
// So the sampler has no state. The order of an epoch is torch.randperm(n), seeded with seed + epoch, as in PyTorch's
// DistributedSampler. A global batch is the slice of that order that begins at a position. Rank r of W takes every W-th sample
// of the slice, beginning with the r-th. Example: the 8 samples at positions 8 to 15.
//
//   W = 3   rank 0: 8 11 14      rank 1: 9 12 15      rank 2: 10 13
//   W = 2   rank 0: 8 10 12 14   rank 1: 9 11 13 15
//
// Both worlds use the same global batch. A lost worker changes only the shares, so sums of gradients agree to rounding. The
// number of finished steps gives the epoch and the position. So the sampler needs one integer in a checkpoint.
//
// Nothing is padded or dropped, so the last batch of an epoch may be smaller. Shares then differ in size and may be empty. An
// unweighted mean over ranks would give samples of small shares more influence. So gradients have the weight n_r * W / B: the
// rank has n_r samples, the batch has B (decision 22, docs/internals/decisions/data/sampler.md). A rank without samples takes
// part in the collectives with a sample of weight 0 (loader.hpp).
//
// Mixup follows the same rule. Pairs within the share of a rank would depend on W. So a sample is mixed with its neighbour in
// the global batch. torchvision draws one weight for a whole batch. We draw one for each sample, so that its position alone
// determines the weight. We considered an exchange of samples between ranks. A lost worker would interrupt it, and nothing
// repeats it. Instead each rank makes the partners itself (docs/internals/decisions/data/mixup.md).
//
// Cost: each rank computes the order of the whole epoch, 8 bytes for each sample. With mixup each sample is made twice. Seed
// and epoch are added, so two runs can share an order: seed 3 in epoch 4 has the order of seed 7 in epoch 0. We tried no other
// order: with this one a run can have the bits of Python's DDP.
#pragma once

#include <cstdint>
#include <vector>

namespace ddprun::trainer {

// The indices 0 to n-1 in the order of that epoch.
std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch);

// Mixup (Zhang et al. 2018): returns the place of the partner for the sample at `place` in a global batch of `size` samples.
// The partner is the sample before it, and the last sample for the first. The order of an epoch is random, so the pairs are
// too.
std::int64_t mixed_with(std::int64_t place, std::int64_t size);

// Mixup: weight of the sample itself, from 0 to 1; its partner has the rest. Drawn from Beta(alpha, alpha) with Philox 4x32-10.
// The key is the seed, the epoch and the sample's position in the epoch.
float own_part(double alpha, std::uint64_t seed, std::int64_t epoch, std::int64_t position);

// Samples of the global batch order[position, position + size) that `rank` of `world` takes. Empty if size <= rank, which a
// ragged last batch can cause.
std::vector<std::int64_t> share_of_batch(const std::vector<std::int64_t>& order, std::int64_t position, std::int64_t size,
                                         int world, int rank);

// Number of samples in that share.
std::int64_t share_size(std::int64_t size, int world, int rank);

// Steps of an epoch: ceil(n / batch_size).
std::int64_t steps_per_epoch(std::int64_t n, std::int64_t batch_size);

// Contiguous block [first, last) of the n samples that `rank` of `world` evaluates. The blocks of all ranks cover each sample
// once, so an evaluation is exact.
struct Block {
  std::int64_t first = 0;
  std::int64_t last = 0;
};
Block evaluation_block(std::int64_t n, int world, int rank);

}  // namespace ddprun::trainer
