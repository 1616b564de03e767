// Does file work on a thread of its own, one piece after the other: a file system that stalls delays this thread and not the
// queue's owner. The launcher writes logs and the report through one queue, the rendezvous writes a node's record through
// another.
//
// The first piece of work starts the thread. When no thread can be started, or the owner says that it may still block
// (kAtOnce), add() does the work itself. The owner limits how much may wait, since it knows whose work it is: `then` tells it
// that a piece is done.
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
  // The file that the work is about, for messages; may be nullptr.
  using About = std::shared_ptr<const std::filesystem::path>;

  // kAtOnce: add() does the work itself until go_behind(), so that a short job needs no thread.
  enum class Begins { kBehind, kAtOnce };
  explicit FileQueue(Post post, Begins begins = Begins::kBehind);
  ~FileQueue();  // does the work that is left, and waits for it
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  // Call it on the owner's thread. `work` runs on the queue's thread after all earlier work; `then` runs on the owner's thread
  // after `work`.
  void add(Work work, Work then = {}, About about = {});

  void go_behind() { at_once_ = false; }
  bool is_at_once() const { return at_once_; }

  // How long the owner may wait for an answer without neglecting its other duties, such as a lease.
  static constexpr std::chrono::milliseconds kMoment{200};

  // Waits until all earlier work is done, at most for `limit`; false when it takes longer. Until that work is done, further
  // calls return false at once: several questions in a row wait only once.
  bool is_done_within(std::chrono::milliseconds limit);

  // What `question` returns, asked after all earlier work; nothing when that takes longer than kMoment.
  template <class Question>
  auto ask(Question question) -> std::optional<decltype(question())> {
    const auto answer = std::make_shared<std::optional<decltype(question())>>();
    add([answer, question = std::move(question)] { *answer = question(); });
    return is_done_within(kMoment) ? std::move(*answer) : std::nullopt;
  }

  // The first waits until all earlier work is done, however long that takes. The second waits at most for `limit`, and returns
  // whether it is done. As is_done_within(), on the owner's thread.
  void finish();
  bool finish_within(std::chrono::milliseconds limit);
  // The file on which the queue works now; nullptr when it does nothing, or nobody named a file.
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
  std::optional<std::uint64_t> awaited_;  // the owner waits until so many are done
  std::optional<std::uint64_t> late_;     // after a timeout: how many pieces must be done before anybody waits again
  bool ends_ = false;
  bool at_once_ = false;
  bool has_no_thread_ = false;  // no thread could be started
  std::thread thread_;
};

}  // namespace ddprun
