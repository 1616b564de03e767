// Breaks the process group from another thread than the one that waits in it. Every collective then fails immediately with
// "Connection closed by peer", also between two living ranks, and so does the making of a group. Gloo has no abort function,
// but it takes a closed connection for a lost peer. trainer/job/recovery.cpp calls it when the agent orders a regroup.
//
// If each worker has its own GPU, the group also has an NCCL backend, which is aborted. A wait for it then returns as if the
// work were done, with any numbers. So Peers::arrive() and the other exchanges of Peers check broken() before they use a
// result.
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
  // `world` is the size of the groups.
  explicit GroupBreaker(int world) : world_(world) {}
  ~GroupBreaker() { mend(); }
  GroupBreaker(const GroupBreaker&) = delete;
  GroupBreaker& operator=(const GroupBreaker&) = delete;

  // Held by the thread that makes a group. TCP sockets that are created meanwhile count as the group's. All other sockets of
  // the process are left alone, such as those of a data loader or a metrics server.
  class Making {
   public:
    explicit Making(GroupBreaker& breaker) : breaker_(breaker) { breaker_.making_begins(); }
    ~Making() { breaker_.making_ends(); }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    GroupBreaker& breaker_;
  };

  // From here until mend(), every connection of a group is shut down, including new ones.
  void break_group();
  // Waits until the abort of the broken group has returned. It can hang in a driver, so call this without a lock.
  void await_abort();
  // Call when the old group is gone. Then the next one may be made.
  void mend();
  bool broken() const { return broken_; }
  // Registers the backend of the new group: break_group() aborts it in a thread. Call from any thread except that of
  // break_group().
  void aborts(c10::intrusive_ptr<c10d::Backend> backend);
  // True if exchanges of the group end without an error when it is broken.
  bool ends_in_silence() const { return ends_in_silence_; }
  // Sets the size of the next group. Call only while no group is broken.
  void set_world(int world) { world_ = world; }

  // Waits for a message between two ranks; breaking the group ends this wait too. Throws the error of a lost peer.
  void wait(const c10::intrusive_ptr<c10d::Work>& message);
  // The guards of the group's collectives. Each collective must be guarded.
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
  std::set<std::uint64_t> others_;    // cookies of the sockets that existed before the group was made
  std::set<std::uint64_t> of_group_;  // cookies of the sockets that were created since
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
