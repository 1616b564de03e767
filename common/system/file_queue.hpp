// Work on files that nobody waits for, on a thread of its own, one piece after the other: a file system that stalls for a while
// delays this thread and not the one that owns the queue. The launcher writes logs and the report through one, the rendezvous
// what a node remembers through another.
//
// The thread is started by the first piece of work; where none can be had, work is done at once by whoever adds it, and so it
// is where the owner says that nobody can be kept waiting yet. How much may wait is for the owner to bound, who knows whose
// work it is: it hears of each piece that is done (`then`).
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
  // Has `then` run on the owner's thread, later. Called on the queue's thread.
  using Post = std::function<void(Work then)>;
  // What the work is about, for people; may be nullptr.
  using About = std::shared_ptr<const std::filesystem::path>;

  // kAtOnce: until go_behind(), which saves a short job the thread.
  enum class Begins { kBehind, kAtOnce };
  explicit FileQueue(Post post, Begins begins = Begins::kBehind);
  ~FileQueue();  // does what is left, and waits for it
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  // Of the owner's thread. `work` runs on the queue's thread after all that was added before, `then` on the owner's after it.
  void add(Work work, Work then = {}, About about = {});

  void go_behind() { at_once_ = false; }
  bool is_at_once() const { return at_once_; }

  // How long an answer may keep its owner from other duties, a lease for one.
  static constexpr std::chrono::milliseconds kMoment{200};

  // Waits until all that was added is done, at most for `limit`. False when it takes longer. While what took longer is not done
  // yet it says so at once: many who ask in a row wait once.
  bool is_done_within(std::chrono::milliseconds limit);

  // What `question` finds out after all that was added before; nothing when that takes longer than a moment.
  template <class Question>
  auto ask(Question question) -> std::optional<decltype(question())> {
    const auto answer = std::make_shared<std::optional<decltype(question())>>();
    add([answer, question = std::move(question)] { *answer = question(); });
    return is_done_within(kMoment) ? std::move(*answer) : std::nullopt;
  }

  // Waits until all that was added is done, however long that takes; or at most for `limit`, and then says whether it is.
  void finish();
  bool finish_within(std::chrono::milliseconds limit);
  // The file that is waited for now; nullptr when nothing is, or nobody said which.
  About waits_for();

 private:
  struct Piece {
    Work work;
    Work then;
    About about;
  };

  bool start();
  void run();

  Post post_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::condition_variable done_;
  std::deque<Piece> waiting_;
  About under_way_;
  std::uint64_t pieces_added_ = 0;
  std::uint64_t pieces_done_ = 0;
  std::optional<std::uint64_t> late_;  // so many must be done before anybody waits again
  bool ends_ = false;
  bool at_once_ = false;
  bool has_no_thread_ = false;  // none can be had
  std::thread thread_;
};

}  // namespace ddprun
