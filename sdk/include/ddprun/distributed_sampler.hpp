// Decides which samples a rank processes in which step, as a pure function of (seed, step, rank, number of ranks). The order
// of an epoch is the same as in PyTorch: torch.randperm(samples) with the generator seeded by seed + epoch. The global batch
// of a step is the next part of this order. Rank r of W processes the samples r, r + W, r + 2 W and so on of the global batch.
// An example with 10 samples, a global batch of 4 and 2 ranks:
//
//   step   global batch   rank 0            rank 1
//   0      order[0..3]    order[0], [2]     order[1], [3]
//   1      order[4..7]    order[4], [6]     order[5], [7]
//   2      order[8..9]    order[8]          order[9]
//
// A restart or a different number of ranks does not change the global batches, so there is no state to save. No samples are
// padded or dropped, so the last batch of an epoch may be smaller.
#pragma once

#include <cstdint>
#include <vector>

namespace ddprun {

struct DistributedShare {
  std::int64_t epoch = 0;             // indices from 0; there is at least one
  std::vector<std::int64_t> samples;  // indices from 0; never empty
  // The weight of this rank's mean loss in DataParallel::backward(). With these weights, the mean over the ranks equals the
  // mean over the global batch. The weight is 1 if all ranks have the same number of samples. If a small last batch has no
  // sample for this rank, the weight is 0. `samples` then contains a sample of another rank, because every rank must run a
  // backward pass.
  double weight = 1;
};

// Do not use an object in several threads at the same time, since share() caches the order of the newest epoch.
class DistributedSampler {
 public:
  // `batch_size` is the size of the global batch. Throws ddprun::UsageError (a std::runtime_error) unless `samples` and
  // `batch_size` are above 0.
  DistributedSampler(std::int64_t samples, std::int64_t batch_size, std::uint64_t seed = 0);

  std::int64_t steps_per_epoch() const { return (samples_ + batch_size_ - 1) / batch_size_; }

  // Returns the samples of `rank` in the step that follows `finished` finished steps. Requires 0 <= rank < world.
  DistributedShare share(std::int64_t finished, int rank, int world);

 private:
  std::int64_t samples_;
  std::int64_t batch_size_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

}  // namespace ddprun
