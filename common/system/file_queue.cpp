#include "common/system/file_queue.hpp"

#include <exception>
#include <system_error>
#include <utility>

#include "common/system/signal_masked_thread.hpp"

namespace ddprun {

FileQueue::FileQueue(Post post, Mode mode) : post_(std::move(post)), inline_(mode == Mode::kInline) {}

FileQueue::~FileQueue() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  added_.notify_one();
  thread_.join();
}

bool FileQueue::start() {
  try {
    thread_ = signal_masked_thread([this] { run(); });
  } catch (const std::system_error&) {
    has_no_thread_ = true;
  }
  return !has_no_thread_;
}

void FileQueue::add(Work work, Work then, About about) {
  if (inline_ || has_no_thread_ || (!thread_.joinable() && !start())) {
    work();
    if (then) post_(std::move(then));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(work), std::move(then), std::move(about)});
    ++pieces_added_;
  }
  added_.notify_one();
}

void FileQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    added_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Piece piece = std::move(waiting_.front());
    waiting_.pop_front();
    current_ = std::move(piece.about);
    lock.unlock();
    try {
      piece.work();
    } catch (const std::exception&) {
      // The work has failed, for example because memory is exhausted. The work item still counts as done, because wait_for()
      // counts finished items, and the next item may succeed.
    }
    piece.work = nullptr;  // frees the work's captures before `then` runs
    try {
      if (piece.then) post_(std::move(piece.then));
    } catch (const std::exception&) {
    }
    lock.lock();
    ++pieces_done_;
    current_.reset();
    if (awaited_ && pieces_done_ >= *awaited_) done_.notify_one();
  }
}

bool FileQueue::wait_for(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (late_ && pieces_done_ < *late_) return false;
  late_.reset();
  if (all_done(lock, limit)) return true;
  late_ = pieces_added_;
  return false;
}

// Waits until all work items are done. Returns false if that takes longer than `limit`; nullopt means no limit. The owner's
// thread waits here, so it adds no items during the wait. The thread is woken only once, after the last item, because a
// wake-up costs both threads more time than an item of work.
bool FileQueue::all_done(std::unique_lock<std::mutex>& lock, std::optional<std::chrono::milliseconds> limit) {
  awaited_ = pieces_added_;
  const auto done = [this] { return pieces_done_ >= *awaited_; };
  bool all = true;
  if (limit) {
    all = done_.wait_for(lock, *limit, done);
  } else {
    done_.wait(lock, done);
  }
  awaited_.reset();
  return all;
}

FileQueue::About FileQueue::waits_for() {
  const std::lock_guard lock(mutex_);
  return current_;
}

void FileQueue::finish() {
  std::unique_lock lock(mutex_);
  all_done(lock, std::nullopt);
}

bool FileQueue::finish_within(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return all_done(lock, limit);
}

}  // namespace ddprun
