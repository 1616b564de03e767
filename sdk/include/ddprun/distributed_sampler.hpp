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
  std::vector<std::int64_t> samples;  // indices from 0, never none
  // What this rank's mean loss counts for, so that the mean over ranks, which DataParallel makes, is that over the global
  // batch: 1 where all have equally many. 0 where a smaller last batch left nothing for this rank: `samples` then has one of
  // another rank, since every rank has to run backward.
  double weight = 1;
};

// One thread at a time: it keeps the order of the newest epoch.
class DistributedSampler {
 public:
  // `batch_size` is that of all ranks together. Throws ddprun::UsageError (std::runtime_error) unless both are above 0.
  DistributedSampler(std::int64_t samples, std::int64_t batch_size, std::uint64_t seed = 0);

  std::int64_t steps_per_epoch() const { return (samples_ + batch_size_ - 1) / batch_size_; }

  // For the step that comes after `finished` ones, 0 <= rank < world.
  DistributedShare share(std::int64_t finished, int rank, int world);

 private:
  std::int64_t samples_;
  std::int64_t batch_size_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

}  // namespace ddprun
