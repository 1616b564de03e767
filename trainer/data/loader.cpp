// Makes each rank's share (its samples of one global batch) in the order of the steps, for the training loop. next() makes a
// small share itself, since a handover between threads costs more than the work (see kInlineBytes). Threads make larger shares
// ahead of time.
#include "trainer/data/loader.hpp"

#include <ATen/EmptyTensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/system/prefetcher.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/reading/mapping_watch.hpp"
#include "trainer/reading/source_error.hpp"

namespace ddprun::trainer {
namespace {

// next() makes a share of up to this size itself (41 images of 28 x 28, about 45 us of work). On two cores, we measured that
// the training thread needs 7 us of CPU time to receive a share from another thread. If the workers use all cores, the
// training thread also waits 200 us to be scheduled.
constexpr std::int64_t kInlineBytes = std::int64_t{128} << 10;

using Order = std::vector<std::int64_t>;

// Computes the sample order of each epoch once for all threads. An order can be as large as the data of a text. So every order
// except the newest is freed when no thread uses it. Several threads may use the object.
class EpochOrders {
 public:
  EpochOrders(std::int64_t samples, std::uint64_t seed) : samples_(samples), seed_(seed) {}

  std::shared_ptr<const Order> of(std::int64_t epoch) {
    const std::lock_guard lock(mutex_);
    if (epoch == newest_epoch_) return newest_;
    if (epoch > newest_epoch_) {
      before_ = std::exchange(newest_, nullptr);
      before_epoch_ = std::exchange(newest_epoch_, -1);  // reset first, since the allocation in made() may fail
      newest_ = made(epoch);
      newest_epoch_ = epoch;
      return newest_;
    }
    // This code is reached if the calling thread still makes samples of an earlier epoch.
    std::shared_ptr<const Order> order = epoch == before_epoch_ ? before_.lock() : nullptr;
    if (!order) before_ = order = made(epoch);
    before_epoch_ = epoch;
    return order;
  }

 private:
  std::shared_ptr<const Order> made(std::int64_t epoch) const {
    return std::make_shared<const Order>(epoch_order(samples_, seed_, epoch));
  }

  const std::int64_t samples_;
  const std::uint64_t seed_;
  std::mutex mutex_;
  std::int64_t newest_epoch_ = -1;
  std::shared_ptr<const Order> newest_;
  std::int64_t before_epoch_ = -1;
  std::weak_ptr<const Order> before_;
};

// Makes this rank's share of any step's global batch. Several threads may use the object.
class RankBatchMaker {
 public:
  RankBatchMaker(const Source& source, const LoaderOptions& options)
      : source_(source), samples_(source.size()), options_(options), orders_(samples_, options.seed) {}

  RankBatch make(std::int64_t step) try {
    const std::int64_t steps = steps_per_epoch(samples_, options_.batch_size);
    RankBatch share;
    share.step = step;
    share.epoch = step / steps;
    share.position = step % steps * options_.batch_size;
    share.global_size = std::min(options_.batch_size, samples_ - share.position);
    const std::shared_ptr<const Order> kept = orders_.of(share.epoch);
    const Order& order = *kept;
    share.samples = share_of_batch(order, share.position, share.global_size, options_.world, options_.rank);
    share.own_size = static_cast<std::int64_t>(share.samples.size());
    share.global_weight = weight_of_batch(share, order);
    const Draws draws{.seed = options_.seed, .epoch = share.epoch};
    const std::int64_t micro =
        options_.micro_batch_size > 0 ? options_.micro_batch_size : std::max<std::int64_t>(1, share.own_size);
    share.micro_batches.reserve(static_cast<std::size_t>((share.own_size + micro - 1) / micro));
    for (std::int64_t first = 0; first < share.own_size; first += micro) {
      const auto count = static_cast<std::size_t>(std::min(micro, share.own_size - first));
      Batch batch = source_.make(std::span(share.samples).subspan(static_cast<std::size_t>(first), count), draws);
      // A micro-batch of total weight 0 is skipped: its mean loss would be NaN, and the micro-batch does not affect the
      // training.
      if (!(batch.weight > 0)) continue;
      if (options_.mixup > 0) add_partners(batch, share, order, first, draws);
      share.micro_batches.push_back(std::move(batch));
    }
    const std::size_t passes = options_.equal_passes ? max_passes(share) : 1;
    while (share.micro_batches.size() < passes) share.micro_batches.push_back(stand_in(share, order));
    require_mapped_files();
    return share;
  } catch (...) {
    rethrow_as_source_error();
  }

  bool is_small() const {
    std::size_t bytes = 0;
    for (const TensorDescription& tensor : source_.describe().tensors) {
      bytes += static_cast<std::size_t>(c10::multiply_integers(tensor.sizes)) * c10::elementSize(tensor.type);
    }
    if (options_.mixup > 0) bytes *= 2;
    return share_size(options_.batch_size, options_.world, options_.rank) * static_cast<std::int64_t>(bytes) <= kInlineBytes;
  }

 private:
  // Returns the number of micro-batches of rank 0, which always has the largest share.
  std::size_t max_passes(const RankBatch& share) const {
    const std::int64_t micro = options_.micro_batch_size;
    if (micro == 0) return 1;
    return static_cast<std::size_t>((share_size(share.global_size, options_.world, 0) + micro - 1) / micro);
  }

  // Adds the mixup partners of the samples in `batch`; `first` is the index of the batch's first sample within the share. Each
  // partner is bit-identical to the same sample at its own position in the global batch, even if another rank has that
  // position.
  void add_partners(Batch& batch, const RankBatch& share, const Order& order, std::int64_t first, const Draws& draws) const {
    const std::int64_t count = batch.tensors.front().size(0);
    batch.own_part = at::detail::empty_cpu({count}, at::kFloat, /*pin_memory=*/batch.tensors.front().is_pinned());
    auto* const parts = batch.own_part.mutable_data_ptr<float>();
    std::vector<std::int64_t> partners;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t place = options_.rank + (first + i) * options_.world;
      partners.push_back(order[static_cast<std::size_t>(share.position + mixed_with(place, share.global_size))]);
      parts[i] = own_part(options_.mixup, options_.seed, share.epoch, share.position + place);
    }
    batch.partners = source_.make(partners, draws).tensors;
  }

  // Returns a micro-batch with the first sample of the global batch that has a weight above 0. A sample of weight 0 may have
  // invalid values. These could corrupt this step, since 0 times NaN is NaN.
  Batch stand_in(const RankBatch& share, const Order& order) const {
    auto at = static_cast<std::size_t>(share.position);
    while (!(source_.weight(order[at]) > 0)) ++at;
    const std::array<std::int64_t, 1> sample{order[at]};
    Batch batch = source_.make(sample, {});
    batch.stand_in = true;
    return batch;
  }

  double weight_of_batch(const RankBatch& share, const Order& order) const {
    double sum = 0;
    for (std::int64_t i = share.position; i < share.position + share.global_size; ++i) {
      sum += source_.weight(order[static_cast<std::size_t>(i)]);
    }
    if (sum > 0) return sum;
    throw UsageError("the " + std::to_string(share.global_size) + " samples of step " + std::to_string(share.step + 1) +
                     " have a total weight of " + std::to_string(sum) +
                     "; the mean loss needs a total above 0. Check the sample weights, or increase batch_size");
  }

  const Source& source_;
  std::int64_t samples_;
  LoaderOptions options_;
  EpochOrders orders_;
};

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(std::string("Loader: ") + what);
}

}  // namespace

struct Loader::Impl {
  Impl(const Source& source, const LoaderOptions& options, std::int64_t first_step, std::int64_t last_step)
      : maker(source, options), next_step(first_step), end_step(last_step) {
    if (first_step >= last_step || (options.threads == 1 && maker.is_small())) return;
    shares.emplace(Prefetcher<RankBatch>::Options{.first = first_step,
                                                  .end = last_step,
                                                  .threads = options.threads,
                                                  .ahead = options.prefetch,
                                                  .thread_name = "loader"},
                   [this](std::int64_t step) { return maker.make(step); });
  }

  RankBatch next() {
    if (shares) return shares->next();
    if (next_step >= end_step) {
      throw std::logic_error("Loader::next: step " + std::to_string(next_step) +
                             " was requested, but the loader ends before step " + std::to_string(end_step));
    }
    RankBatch share = maker.make(next_step);
    ++next_step;
    return share;
  }

 private:
  RankBatchMaker maker;
  std::int64_t next_step;  // next step whose share next() makes itself
  const std::int64_t end_step;
  std::optional<Prefetcher<RankBatch>> shares;  // nullopt if the loader has no threads
};

Loader::Loader(const Source& source, LoaderOptions options, std::int64_t first_step, std::int64_t last_step) {
  require(source.size() > 0, "the data set is empty");
  require(options.batch_size > 0, "batch_size must be 1 or more");
  require(options.micro_batch_size >= 0, "micro_batch_size must not be negative");
  require(options.prefetch > 0, "prefetch must be 1 or more");
  require(options.threads > 0, "threads must be 1 or more");
  require(options.world > 0 && options.rank >= 0 && options.rank < options.world,
          "rank must be 0 or more and less than world, the number of ranks");
  require(first_step >= 0, "first_step must not be negative");
  impl_ = std::make_unique<Impl>(source, options, first_step, last_step);
}

Loader::~Loader() = default;

RankBatch Loader::next() {
  return impl_->next();
}

}  // namespace ddprun::trainer
