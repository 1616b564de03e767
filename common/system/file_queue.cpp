// Implementation of file_queue.hpp.
#include "common/system/file_queue.hpp"

#include <exception>
#include <system_error>
#include <utility>

#include "common/system/quiet_thread.hpp"

namespace ddprun {

FileQueue::FileQueue(Post post, Begins begins) : post_(std::move(post)), at_once_(begins == Begins::kAtOnce) {}

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
    thread_ = quiet_thread([this] { run(); });
  } catch (const std::system_error&) {
    has_no_thread_ = true;
  }
  return !has_no_thread_;
}

void FileQueue::add(Work work, Work then, About about) {
  if (at_once_ || has_no_thread_ || (!thread_.joinable() && !start())) {
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
    under_way_ = std::move(piece.about);
    lock.unlock();
    try {
      piece.work();
    } catch (const std::exception&) {
      // Out of memory. The next piece may succeed. This piece must still count as done, since waiting callers count pieces.
    }
    piece.work = nullptr;  // frees its captures before `then` runs
    try {
      if (piece.then) post_(std::move(piece.then));
    } catch (const std::exception&) {
    }
    lock.lock();
    ++pieces_done_;
    under_way_.reset();
    if (awaited_ && pieces_done_ >= *awaited_) done_.notify_one();
  }
}

bool FileQueue::is_done_within(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (late_ && pieces_done_ < *late_) return false;
  late_.reset();
  if (all_done(lock, limit)) return true;
  late_ = pieces_added_;
  return false;
}

// The owner adds nothing meanwhile. It is woken only once, since each wake-up costs both threads more than a piece takes.
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
  return under_way_;
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
