// Breaks the group that this process is in, from another thread than the one that waits in it: every collective, also between
// two ranks that both live, fails at once with "Connection closed by peer", and so does the making of a group. Gloo has no
// abort of its own; it takes a closed connection for a lost peer. trainer/job/recovery.cpp calls it when the agent orders a
// regroup.
//
// A group on GPUs of their own has a backend beside Gloo, NCCL's, that is aborted. What waits for it then returns as if it were
// done, with any numbers: Peers::arrive() and the other exchanges of Peers ask broken() before they believe a result.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>

#include "trainer/parallel/breakable_works.hpp"

namespace ddprun::trainer {

class GroupBreaker {
 public:
  // `world`: size of the groups.
  explicit GroupBreaker(int world) : world_(world) {}
  ~GroupBreaker() { mend(); }
  GroupBreaker(const GroupBreaker&) = delete;
  GroupBreaker& operator=(const GroupBreaker&) = delete;

  // Held while a group is being made, by the thread that makes it. What TCP sockets come into being meanwhile are the group's;
  // all others of the process are nobody's business: a data loader's, a metrics server's.
  class Making {
   public:
    explicit Making(GroupBreaker& breaker) : breaker_(breaker) { breaker_.making_begins(); }
    ~Making() { breaker_.making_ends(); }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    GroupBreaker& breaker_;
  };

  // From here until mend() no connection of a group lives, nor one that is being made.
  void break_group();
  // Waits until the abort of the broken group has returned. It can hang in a driver, so call this without a lock.
  void await_abort();
  // The old group is gone; the next may be made.
  void mend();
  bool broken() const { return broken_; }
  // Of the group that was just made: break_group() aborts it, in a thread of its own. Any thread but that of break_group().
  void aborts(c10::intrusive_ptr<c10d::Backend> backend);
  // Its exchanges end without an error when the group is broken.
  bool ends_in_silence() const { return ends_in_silence_; }
  // Of the next group; while nothing is broken.
  void set_world(int world) { world_ = world; }

  // Waits for a message between two ranks; a broken group ends this as well. Throws what is taken for a lost peer.
  void wait(const c10::intrusive_ptr<c10d::Work>& message);
  // The collectives of the group, each of which is to be guarded.
  BreakableWorks& collectives() { return collectives_; }

 private:
  void making_begins();
  void making_ends();
  void abort_backend();
  bool is_of_group(std::uint64_t cookie);
  void shut_connections();
  void answer_for_the_lost();
  void abort_messages();

  int world_;
  std::atomic<bool> broken_ = false;
  std::mutex sockets_mutex_;
  int makings_ = 0;
  std::set<std::uint64_t> others_;    // cookies of the sockets that were there when the making began
  std::set<std::uint64_t> of_group_;  // of those that the making left
  std::mutex mutex_;
  std::condition_variable_any mended_;
  std::mutex messages_mutex_;
  std::set<c10::intrusive_ptr<c10d::Work>> messages_;
  BreakableWorks collectives_;
  std::mutex backend_mutex_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::atomic<bool> ends_in_silence_ = false;
  std::jthread aborting_;
  std::jthread thread_;
};

}  // namespace ddprun::trainer
