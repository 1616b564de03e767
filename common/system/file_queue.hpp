// Does file work on a separate thread, one piece after the other. So a file system that stalls delays this thread and not the
// queue's owner. The launcher writes logs and the report through one queue, the rendezvous writes a node's record through
// another.
//
// The first piece of work starts the thread. If no thread can be started, or if the owner may still block (kAtOnce), add() does
// the work itself. The owner limits the waiting work, since it knows the source of each piece. `then` reports a finished piece
// to it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace ddprun {

class FileQueue {
 public:
  using Work = std::function<void()>;
  // Runs `then` on the owner's thread, later. The queue's thread calls it.
  using Post = std::function<void(Work then)>;
  // The file of the work, for messages; may be nullptr.
  using About = std::shared_ptr<const std::filesystem::path>;

  // kAtOnce: add() does the work itself until go_behind(), so that a short job needs no thread.
  enum class Begins { kBehind, kAtOnce };
  explicit FileQueue(Post post, Begins begins = Begins::kBehind);
  ~FileQueue();  // does the remaining work, and waits for it
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  // Call it on the owner's thread. `work` runs on the queue's thread after all earlier work; `then` runs on the owner's thread
  // after `work`.
  void add(Work work, Work then = {}, About about = {});

  void go_behind() { at_once_ = false; }
  bool is_at_once() const { return at_once_; }

  // How long the owner may wait for an answer without neglecting its other duties, such as a lease.
  static constexpr std::chrono::milliseconds kMoment{200};

  // Waits until all earlier work is done, at most for `limit`; false if it takes longer. Until that work is done, further calls
  // return false immediately: so several queries in a row wait only once.
  bool is_done_within(std::chrono::milliseconds limit);

  // The result of `question`, called after all earlier work; nullopt if that takes longer than kMoment.
  template <class Question>
  auto ask(Question question) -> std::optional<decltype(question())> {
    const auto answer = std::make_shared<std::optional<decltype(question())>>();
    add([answer, question = std::move(question)] { *answer = question(); });
    return is_done_within(kMoment) ? std::move(*answer) : std::nullopt;
  }

  // finish() waits until all earlier work is done, without a limit. finish_within() waits at most for `limit`, and returns
  // whether the work is done. Like is_done_within(), call both on the owner's thread.
  void finish();
  bool finish_within(std::chrono::milliseconds limit);
  // The file of the current work; nullptr if the queue is idle or no file was given.
  About waits_for();

 private:
  struct Piece {
    Work work;
    Work then;
    About about;
  };

  bool start();
  void run();
  bool all_done(std::unique_lock<std::mutex>& lock, std::optional<std::chrono::milliseconds> limit);

  Post post_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::condition_variable done_;
  std::deque<Piece> waiting_;
  About under_way_;
  std::uint64_t pieces_added_ = 0;
  std::uint64_t pieces_done_ = 0;
  std::optional<std::uint64_t> awaited_;  // the owner waits until this many are done
  std::optional<std::uint64_t> late_;     // after a timeout: number of pieces that must be done before the owner waits again
  bool ends_ = false;
  bool at_once_ = false;
  bool has_no_thread_ = false;  // no thread could be started
  std::thread thread_;
};

}  // namespace ddprun
