// Which samples a rank takes in which step: a pure function of (seed, step, rank, number of ranks). The order of an epoch is
// PyTorch's: torch.randperm(samples) with the generator seeded by seed + epoch. Of each global batch rank r of W takes every
// W-th sample, beginning with the r-th. So the order depends neither on how many ranks share it nor on restarts, and there is
// nothing to save. Nothing is padded or dropped: the last batch of an epoch may be smaller.
#pragma once

#include <cstdint>
#include <vector>

namespace ddprun {

struct DistributedShare {
  std::int64_t epoch = 0;             // counted from 0
  std::vector<std::int64_t> samples;  // indices from 0; never empty
  // Weight of this rank's mean loss. With it, the mean over ranks that DataParallel computes is the mean over the global batch.
  // It is 1 if all ranks have the same number of samples. It is 0 if a smaller last batch left no sample for this rank.
  // `samples` then holds a sample of another rank, since every rank must run backward.
  double weight = 1;
};

// For one thread at a time: it caches the order of the newest epoch.
class DistributedSampler {
 public:
  // `batch_size` is the global batch size. Throws ddprun::UsageError (std::runtime_error) unless both numbers are above 0.
  DistributedSampler(std::int64_t samples, std::int64_t batch_size, std::uint64_t seed = 0);

  std::int64_t steps_per_epoch() const { return (samples_ + batch_size_ - 1) / batch_size_; }

  // Share of the step after `finished` finished steps; 0 <= rank < world.
  DistributedShare share(std::int64_t finished, int rank, int world);

 private:
  std::int64_t samples_;
  std::int64_t batch_size_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

}  // namespace ddprun
