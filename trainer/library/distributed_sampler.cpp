// Implementation of sdk/include/ddprun/distributed_sampler.hpp with the functions of ddptrain's loader.
#include <ddprun/distributed_sampler.hpp>

#include <algorithm>
#include <string>

#include "common/base/error.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/loop/loss.hpp"

namespace ddprun {

DistributedSampler::DistributedSampler(std::int64_t samples, std::int64_t batch_size, std::uint64_t seed)
    : samples_(samples), batch_size_(batch_size), seed_(seed) {
  if (samples > 0 && batch_size > 0) return;
  throw UsageError("a sampler needs 1 or more samples and a batch size of 1 or more, found " + std::to_string(samples) +
                   " samples and batch size " + std::to_string(batch_size));
}

DistributedShare DistributedSampler::share(std::int64_t finished, int rank, int world) {
  if (finished < 0 || rank < 0 || rank >= world) {
    throw UsageError("expected a step and a rank of 0 or more, and a rank below the world size, found step " +
                     std::to_string(finished) + ", rank " + std::to_string(rank) + " of " + std::to_string(world));
  }
  DistributedShare share{.epoch = finished / steps_per_epoch(), .samples = {}};
  if (share.epoch != epoch_) {
    order_ = trainer::epoch_order(samples_, seed_, share.epoch);
    epoch_ = share.epoch;
  }
  const std::int64_t position = finished % steps_per_epoch() * batch_size_;
  const std::int64_t size = std::min(batch_size_, samples_ - position);
  share.samples = trainer::share_of_batch(order_, position, size, world, rank);
  const auto own = static_cast<double>(share.samples.size());
  share.weight = trainer::micro_batch_weight(own, world, static_cast<double>(size));
  if (share.samples.empty()) share.samples.push_back(order_[static_cast<std::size_t>(position)]);
  return share;
}

}  // namespace ddprun
