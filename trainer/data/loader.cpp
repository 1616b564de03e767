// The loader: makes shares in the order of the steps. Shares of little work are made inside next(): handing one over between
// threads costs more than making it (see kInlineBytes); all others come from a thread that works ahead. The training loop calls
// it.
#include "trainer/data/loader.hpp"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "common/system/quiet_thread.hpp"
#include "trainer/data/pixels.hpp"
#include "trainer/data/sampler.hpp"

namespace ddprun::trainer {
namespace {

// Up to this size (41 images of 28 x 28, some 45 us of work) a share is made in next(). Measured on two cores: taking one over
// from the thread costs the training 7 us of its own time, and 200 us of waiting for the scheduler where the workers use all
// cores.
constexpr std::int64_t kInlineBytes = std::int64_t{128} << 10;

// Makes samples of a data set into micro-batches.
class BatchMaker {
 public:
  BatchMaker(const Dataset& data, Normalization normalization, Pictures pictures)
      : shape_{data.images.size(1), data.images.size(2), data.images.size(3)},
        data_pixels_(data.images.const_data_ptr<std::uint8_t>()),
        data_labels_(data.labels.const_data_ptr<std::int64_t>()),
        table_(make_pixel_table(normalization)),
        pictures_(pictures) {}

  // `draw` gives a sample's Augmentation.
  template <typename Draw>
  MicroBatch augmented(const std::int64_t* samples, std::int64_t count, std::int64_t padding, Draw draw) const {
    return pictures_ == Pictures::kPinnedBytes
               ? make<std::uint8_t>(samples, count,
                                    [&](std::int64_t sample, const std::uint8_t* from, std::uint8_t* to) {
                                      copy_augmented(from, shape_, padding, draw(sample), to);
                                    })
               : make<float>(samples, count, [&](std::int64_t sample, const std::uint8_t* from, float* to) {
                   normalize_augmented(from, shape_, table_, padding, draw(sample), to);
                 });
  }

  MicroBatch plain(const std::int64_t* samples, std::int64_t count) const {
    return pictures_ == Pictures::kPinnedBytes
               ? make<std::uint8_t>(
                     samples, count,
                     [&](std::int64_t, const std::uint8_t* from, std::uint8_t* to) { std::copy_n(from, shape_.pixels(), to); })
               : make<float>(samples, count, [&](std::int64_t, const std::uint8_t* from, float* to) {
                   normalize(from, shape_.pixels(), table_, to);
                 });
  }

  // Samples that follow each other: one pass over the pixels.
  MicroBatch block(std::int64_t first, std::int64_t count) const {
    MicroBatch batch = empty(count);
    const std::uint8_t* const pixels = data_pixels_ + first * shape_.pixels();
    if (pictures_ == Pictures::kPinnedBytes) {
      std::copy_n(pixels, count * shape_.pixels(), batch.images.mutable_data_ptr<std::uint8_t>());
    } else {
      normalize(pixels, count * shape_.pixels(), table_, batch.images.mutable_data_ptr<float>());
    }
    std::copy_n(data_labels_ + first, count, batch.labels.mutable_data_ptr<std::int64_t>());
    return batch;
  }

  std::int64_t sample_bytes() const { return shape_.pixels() * static_cast<std::int64_t>(sizeof(float)); }

 private:
  MicroBatch empty(std::int64_t count) const {
    const bool bytes = pictures_ == Pictures::kPinnedBytes;
    const bool pinned = bytes && at::globalContext().hasCUDA();  // what pins memory is the device's module
    return {
        at::detail::empty_cpu({count, shape_.channels, shape_.height, shape_.width}, bytes ? at::kByte : at::kFloat, pinned),
        at::detail::empty_cpu({count}, at::kLong, pinned)};
  }

  template <typename To, typename Write>
  MicroBatch make(const std::int64_t* samples, std::int64_t count, Write write) const {
    MicroBatch batch = empty(count);
    auto* image = batch.images.mutable_data_ptr<To>();
    auto* label = batch.labels.mutable_data_ptr<std::int64_t>();
    const std::int64_t pixels = shape_.pixels();
    for (std::int64_t i = 0; i < count; ++i) {
      write(samples[i], data_pixels_ + samples[i] * pixels, image + i * pixels);
      label[i] = data_labels_[samples[i]];
    }
    return batch;
  }

  PlaneShape shape_;
  const std::uint8_t* data_pixels_;
  const std::int64_t* data_labels_;
  PixelTable table_;
  Pictures pictures_;
};

// Makes the share of any step; remembers the order of the epoch it is in.
class ShareMaker {
 public:
  ShareMaker(const Dataset& data, Normalization normalization, const LoaderOptions& options)
      : samples_(data.size()), options_(options), batches_(data, normalization, options.pictures) {}

  Share make(std::int64_t step) {
    const std::int64_t steps = steps_per_epoch(samples_, options_.batch_size);
    Share share;
    share.step = step;
    share.epoch = step / steps;
    share.position = step % steps * options_.batch_size;
    share.global_size = std::min(options_.batch_size, samples_ - share.position);
    share.samples = share_of_batch(order_of(share.epoch), share.position, share.global_size, options_.world, options_.rank);
    share.own_size = static_cast<std::int64_t>(share.samples.size());
    if (share.own_size == 0) {
      constexpr std::int64_t kStandIn = 0;
      share.micro_batches.push_back(batches_.plain(&kStandIn, 1));
      return share;
    }
    const std::int64_t micro = options_.micro_batch_size > 0 ? options_.micro_batch_size : share.own_size;
    share.micro_batches.reserve(static_cast<std::size_t>((share.own_size + micro - 1) / micro));
    for (std::int64_t first = 0; first < share.own_size; first += micro) {
      share.micro_batches.push_back(
          micro_batch(share.samples.data() + first, std::min(micro, share.own_size - first), share.epoch));
    }
    return share;
  }

  bool is_small() const {
    return share_size(options_.batch_size, options_.world, options_.rank) * batches_.sample_bytes() <= kInlineBytes;
  }

 private:
  const std::vector<std::int64_t>& order_of(std::int64_t epoch) {
    if (epoch != epoch_) {
      order_ = epoch_order(samples_, options_.seed, epoch);
      epoch_ = epoch;
    }
    return order_;
  }

  MicroBatch micro_batch(const std::int64_t* samples, std::int64_t count, std::int64_t epoch) const {
    if (options_.augment.crop_padding == 0 && !options_.augment.flip) {
      return batches_.plain(samples, count);
    }
    return batches_.augmented(samples, count, options_.augment.crop_padding, [&](std::int64_t sample) {
      return draw_augmentation(options_.augment, options_.seed, epoch, sample);
    });
  }

  std::int64_t samples_;
  LoaderOptions options_;
  BatchMaker batches_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

void require(bool holds, const char* what) {
  if (!holds) {
    throw std::logic_error(std::string("Loader: ") + what);
  }
}

}  // namespace

struct Loader::Impl {
  Impl(const Dataset& data, Normalization normalization, const LoaderOptions& options, std::int64_t first_step,
       std::int64_t last_step)
      : maker(data, normalization, options),
        capacity(static_cast<std::size_t>(options.prefetch)),
        next_step(first_step),
        end_step(last_step) {
    if (!maker.is_small() && first_step < last_step) {
      start_thread();
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    room.notify_one();
    if (thread.joinable()) {
      thread.join();
    }
  }

  Share next() {
    if (next_step >= end_step) {
      throw std::logic_error("Loader::next: step " + std::to_string(next_step) + " is past the end, " +
                             std::to_string(end_step));
    }
    Share share = thread.joinable() ? take() : maker.make(next_step);
    ++next_step;
    return share;
  }

 private:
  void start_thread() {
    thread = quiet_thread([this, first = next_step] { work(first); });
    pthread_setname_np(thread.native_handle(), "loader");
  }

  void work(std::int64_t step) {
    try {
      for (; step < end_step; ++step) {
        // Made before there is room for it: one share more than `prefetch` may exist, and none is waited for in vain.
        Share share = maker.make(step);
        std::unique_lock lock(mutex);
        if (queue.size() >= capacity) {
          // Wait until half is used up, so that a wake-up pays for several shares and the consumer's notify is seldom a system
          // call.
          producer_waits = true;
          room.wait(lock, [this] { return stopping || queue.size() <= capacity / 2; });
          producer_waits = false;
        }
        if (stopping) {
          return;
        }
        queue.push_back(std::move(share));
        if (consumer_waits) {
          lock.unlock();
          ready.notify_one();
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      ready.notify_one();
    }
  }

  Share take() {
    std::unique_lock lock(mutex);
    consumer_waits = true;
    ready.wait(lock, [this] { return !queue.empty() || failure; });
    consumer_waits = false;
    if (queue.empty()) {
      std::rethrow_exception(failure);
    }
    Share share = std::move(queue.front());
    queue.pop_front();
    if (producer_waits && queue.size() <= capacity / 2) {
      lock.unlock();
      room.notify_one();
    }
    return share;
  }

  ShareMaker maker;  // the thread's once there is one
  const std::size_t capacity;
  std::int64_t next_step;
  const std::int64_t end_step;

  std::mutex mutex;
  std::condition_variable ready;  // the queue has something, or the thread failed
  std::condition_variable room;   // the queue is half empty, or the loader ends
  std::deque<Share> queue;
  std::exception_ptr failure;
  bool consumer_waits = false;
  bool producer_waits = false;
  bool stopping = false;
  std::thread thread;
};

Loader::Loader(const Dataset& data, Normalization normalization, LoaderOptions options, std::int64_t first_step,
               std::int64_t last_step) {
  require(data.size() > 0, "the data set is empty");
  require(options.batch_size > 0, "batch_size must be 1 or more");
  require(options.micro_batch_size >= 0, "micro_batch_size must not be negative");
  require(options.prefetch > 0, "prefetch must be 1 or more");
  require(options.world > 0 && options.rank >= 0 && options.rank < options.world, "rank must be within the world");
  require(first_step >= 0, "first_step must not be negative");
  impl_ = std::make_unique<Impl>(data, normalization, options, first_step, last_step);
}

Loader::~Loader() = default;

Share Loader::next() {
  return impl_->next();
}

MicroBatch evaluation_batch(const Dataset& data, Normalization normalization, std::int64_t first, std::int64_t last,
                            Pictures pictures) {
  require(0 <= first && first < last && last <= data.size(), "evaluation_batch asks for samples outside the data set");
  return BatchMaker(data, normalization, pictures).block(first, last - first);
}

}  // namespace ddprun::trainer
