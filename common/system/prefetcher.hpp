// Prepares items on separate threads before the consumer needs them. The items are the batches of the data loader or of an
// evaluation. The consumer gets the items in the order of their numbers, no matter which thread prepared each item. If the
// preparation of an item fails, the consumer gets the exception instead.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/system/signal_masked_thread.hpp"

namespace ddprun {

template <class Item>
class Prefetcher {
 public:
  struct Options {
    std::int64_t first = 0;
    std::int64_t end = 0;      // number of the last item, plus 1
    std::int64_t threads = 1;  // number of threads; fewer threads are used if the system refuses more
    std::int64_t ahead = 1;    // maximum number of finished items that wait for the consumer; each thread may prepare one more
    const char* thread_name = "";
  };

  // The threads call `make` once with each item number. Several threads may call it at the same time. Throws std::system_error
  // if no thread can be started.
  Prefetcher(const Options& options, std::function<Item(std::int64_t)> make)
      : make_(std::move(make)),
        slots_(static_cast<std::size_t>(options.ahead + options.threads)),
        refill_at_(options.ahead / 2 + options.threads),
        started_(options.first),
        taken_(options.first),
        end_(options.end),
        start_limit_(options.end) {
    try {
      while (std::ssize(threads_) < options.threads && std::ssize(threads_) < options.end - options.first) {
        threads_.push_back(signal_masked_thread([this] { work(); }));
        pthread_setname_np(threads_.back().native_handle(), options.thread_name);
      }
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
    }
  }

  // Waits for the items that the threads are preparing now. The threads start no further items.
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      start_limit_ = started_;
    }
    space_free_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Blocks until the next item is ready, and returns it. If its `make` threw an exception, this call and all later calls
  // rethrow it. Throws std::logic_error after the last item.
  Item next() {
    std::unique_lock lock(mutex_);
    if (taken_ >= end_) throw std::logic_error("Prefetcher::next: item " + std::to_string(taken_) + " is past the end");
    Slot& slot = slot_of(taken_);
    waited_for_ = true;
    ready_.wait(lock, [&] { return slot.item || slot.failure; });
    waited_for_ = false;
    if (slot.failure) std::rethrow_exception(slot.failure);
    Item item = *std::exchange(slot.item, std::nullopt);
    ++taken_;
    // The threads are woken only when half of the items are used. So one wake-up serves several items, and most calls need no
    // system call.
    if (threads_wait_ > 0 && started_ - taken_ <= refill_at_) {
      lock.unlock();
      space_free_.notify_all();
    }
    return item;
  }

 private:
  struct Slot {
    std::optional<Item> item;
    std::exception_ptr failure;
  };

  Slot& slot_of(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++threads_wait_;
      space_free_.wait(lock, [this] { return started_ >= start_limit_ || started_ - taken_ < std::ssize(slots_); });
      --threads_wait_;
      if (started_ >= start_limit_) return;
      const std::int64_t number = started_++;
      lock.unlock();
      Slot result;
      try {
        result.item.emplace(make_(number));
      } catch (...) {
        result.failure = std::current_exception();
      }
      lock.lock();
      // After a failure no further item is started, because the consumer cannot get past the failed item. Other threads still
      // finish the earlier items.
      if (result.failure) start_limit_ = started_;
      slot_of(number) = std::move(result);
      if (waited_for_ && number == taken_) {
        lock.unlock();  // unlock first, because the woken thread needs the mutex
        ready_.notify_one();
        lock.lock();
      }
    }
  }

  const std::function<Item(std::int64_t)> make_;
  std::vector<Slot> slots_;  // ring buffer by item number, with a slot for each item that is started and not taken
  const std::int64_t refill_at_;

  std::mutex mutex_;
  std::condition_variable ready_;       // notified when the next item is ready
  std::condition_variable space_free_;  // notified when half of the items are used, or if no further item will be started
  std::int64_t started_;
  std::int64_t taken_;
  const std::int64_t end_;
  std::int64_t start_limit_;  // item number at which the threads stop: they start only items with lower numbers
  std::int64_t threads_wait_ = 0;
  bool waited_for_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ddprun
