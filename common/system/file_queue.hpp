// Does file work on a separate thread, one work item after the other. If a file system stalls, only this thread waits, and not
// the owner of the queue. The launcher writes logs and the report through one queue, and the rendezvous writes a node's record
// through another queue.
//
// The first work item starts the thread. If no thread can be started, or if the owner may still block (kInline), add() itself
// does the work. The queue has no size limit, so its owner must limit the waiting work. `then` reports each finished item to
// the owner.
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
  // A function of the owner, which must run `then` later on the owner's thread. The queue's thread calls it.
  using Post = std::function<void(Work then)>;
  // The file to which the work belongs, for messages; may be nullptr.
  using About = std::shared_ptr<const std::filesystem::path>;

  // kInline: add() itself does the work until start_async() is called, so that a short job needs no thread.
  enum class Mode { kAsync, kInline };
  explicit FileQueue(Post post, Mode mode = Mode::kAsync);
  ~FileQueue();  // waits until the remaining work is done
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  // Call this on the owner's thread. `work` runs on the queue's thread after all earlier work; `then` runs on the owner's
  // thread after `work`.
  void add(Work work, Work then = {}, About about = {});

  void start_async() { inline_ = false; }
  bool is_inline() const { return inline_; }

  // The longest time that the owner may block. A longer block could delay other events, such as the renewal of a lease.
  static constexpr std::chrono::milliseconds kMaxBlock{200};

  // Waits until all earlier work is done, for at most `limit`. Returns false after a timeout. After a timeout, further calls
  // return false immediately until that work is done. So if several calls follow each other, only the first one waits.
  bool wait_for(std::chrono::milliseconds limit);

  // Calls `question` on the queue's thread after all earlier work, and returns its result; nullopt if that takes longer than
  // kMaxBlock.
  template <class Question>
  auto query(Question question) -> std::optional<decltype(question())> {
    const auto answer = std::make_shared<std::optional<decltype(question())>>();
    add([answer, question = std::move(question)] { *answer = question(); });
    return wait_for(kMaxBlock) ? std::move(*answer) : std::nullopt;
  }

  // finish() waits without a limit until all earlier work is done. finish_within() waits at most for `limit`, and returns true
  // if the work is done. Call both on the owner's thread, like wait_for().
  void finish();
  bool finish_within(std::chrono::milliseconds limit);
  // Returns the file of the work in progress; nullptr if the queue is idle or the work has no file.
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
  About current_;
  std::uint64_t pieces_added_ = 0;
  std::uint64_t pieces_done_ = 0;
  std::optional<std::uint64_t> awaited_;  // the owner waits until this number of work items is done
  std::optional<std::uint64_t> late_;     // after a timeout: wait_for() returns false until this number of work items is done
  bool ends_ = false;
  bool inline_ = false;
  bool has_no_thread_ = false;  // no thread could be started
  std::thread thread_;
};

}  // namespace ddprun
