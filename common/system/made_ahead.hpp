// Items that threads prepare ahead of their consumer: the loader's shares, an evaluation's batches. The consumer gets them in
// the order of their numbers, no matter which thread made them, and gets an exception in place of a failed item.
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

#include "common/system/quiet_thread.hpp"

namespace ddprun {

template <class Thing>
class MadeAhead {
 public:
  struct Options {
    std::int64_t first = 0;
    std::int64_t end = 0;      // the last number plus 1
    std::int64_t threads = 1;  // fewer, if no more can be started
    std::int64_t ahead = 1;    // finished ones that may wait; each thread has one more in progress
    const char* thread_name = "";
  };

  // The threads call `make` once with each number, several at the same time. Throws std::system_error if no thread can be
  // started.
  MadeAhead(const Options& options, std::function<Thing(std::int64_t)> make)
      : make_(std::move(make)),
        places_(static_cast<std::size_t>(options.ahead + options.threads)),
        enough_(options.ahead / 2 + options.threads),
        begun_(options.first),
        taken_(options.first),
        end_(options.end),
        last_begun_(options.end) {
    try {
      while (std::ssize(threads_) < options.threads && std::ssize(threads_) < options.end - options.first) {
        threads_.push_back(quiet_thread([this] { work(); }));
        pthread_setname_np(threads_.back().native_handle(), options.thread_name);
      }
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
    }
  }

  // Waits only for the items in progress.
  ~MadeAhead() {
    {
      const std::lock_guard lock(mutex_);
      last_begun_ = begun_;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  MadeAhead(const MadeAhead&) = delete;
  MadeAhead& operator=(const MadeAhead&) = delete;

  // Blocks until the next item is ready. Rethrows the exception of its `make`, on every call; throws std::logic_error past the
  // end.
  Thing next() {
    std::unique_lock lock(mutex_);
    if (taken_ >= end_) throw std::logic_error("MadeAhead: number " + std::to_string(taken_) + " is past the end");
    Place& place = place_of(taken_);
    waited_for_ = true;
    ready_.wait(lock, [&] { return place.thing || place.failure; });
    waited_for_ = false;
    if (place.failure) std::rethrow_exception(place.failure);
    Thing thing = *std::exchange(place.thing, std::nullopt);
    ++taken_;
    // Only after half is used up, so that one wake-up serves several items and most calls make no system call.
    if (threads_wait_ > 0 && begun_ - taken_ <= enough_) {
      lock.unlock();
      room_.notify_all();
    }
    return thing;
  }

 private:
  struct Place {
    std::optional<Thing> thing;
    std::exception_ptr failure;
  };

  Place& place_of(std::int64_t number) { return places_[static_cast<std::size_t>(number) % places_.size()]; }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++threads_wait_;
      room_.wait(lock, [this] { return begun_ >= last_begun_ || begun_ - taken_ < std::ssize(places_); });
      --threads_wait_;
      if (begun_ >= last_begun_) return;
      const std::int64_t number = begun_++;
      lock.unlock();
      Place made;
      try {
        made.thing.emplace(make_(number));
      } catch (...) {
        made.failure = std::current_exception();
      }
      lock.lock();
      // Items before it are still in progress; later ones will not be requested.
      if (made.failure) last_begun_ = begun_;
      place_of(number) = std::move(made);
      if (waited_for_ && number == taken_) {
        lock.unlock();  // the woken thread needs the mutex
        ready_.notify_one();
        lock.lock();
      }
    }
  }

  const std::function<Thing(std::int64_t)> make_;
  std::vector<Place> places_;  // ring buffer by number: one place for each item that is started and not taken
  const std::int64_t enough_;

  std::mutex mutex_;
  std::condition_variable ready_;  // the next item is ready
  std::condition_variable room_;   // half is used up, or no more items will be made
  std::int64_t begun_;
  std::int64_t taken_;
  const std::int64_t end_;
  std::int64_t last_begun_;  // no thread starts this number or a later one
  std::int64_t threads_wait_ = 0;
  bool waited_for_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ddprun
