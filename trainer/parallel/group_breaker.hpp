// Lets one thread end the waits of other threads in a process group.
//
// The problem. After a rank was lost, the agent requests that the surviving ranks form a new group. A survivor may be waiting
// in a collective of the old group, for the lost rank or for another survivor that has already left. It would wait until the
// timeout of the group. Gloo has no function to abort a group.
//
// The idea. Gloo treats a closed connection as a lost rank. So this class closes all connections of the group in this process.
// Each collective, and also the creation of a group, then fails within milliseconds with "Connection closed by peer", even
// between two live ranks. trainer/job/recovery.cpp calls break_group() when the agent requests a regroup (a new group).
//
// If each worker has its own GPU, the group also has an NCCL backend, which is aborted. After an abort, a wait returns as if
// the collective had succeeded, but its result is undefined. So Peers::sync_device() and the collectives of Peers check
// broken() before a result is used.
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
  // `world` is the number of ranks in the group.
  explicit GroupBreaker(int world) : world_(world) {}
  ~GroupBreaker() { end_break(); }
  GroupBreaker(const GroupBreaker&) = delete;
  GroupBreaker& operator=(const GroupBreaker&) = delete;

  // Marks the time in which a group is created. TCP sockets that are created while this object exists belong to the group. All
  // other sockets of the process, such as the sockets of a data loader or a metrics server, are never closed.
  class GroupCreation {
   public:
    explicit GroupCreation(GroupBreaker& breaker) : breaker_(breaker) { breaker_.creation_begins(); }
    ~GroupCreation() { breaker_.creation_ends(); }
    GroupCreation(const GroupCreation&) = delete;
    GroupCreation& operator=(const GroupCreation&) = delete;

   private:
    GroupBreaker& breaker_;
  };

  // Breaks the group: shuts down all its connections, including new ones, until end_break() is called.
  void break_group();
  // Blocks until the abort of the NCCL backend has returned. The abort can hang in the driver, so the caller must not hold a
  // lock.
  void await_abort();
  // Call this after the old group is destroyed, and before the next one is created.
  void end_break();
  bool broken() const { return broken_; }
  // Registers the NCCL backend of a new group, so that break_group() aborts it in a thread. Do not call this from the thread
  // that calls break_group().
  void set_backend(c10::intrusive_ptr<c10d::Backend> backend);
  // Registers a backend whose abort() neither blocks nor throws. break_group() calls abort() immediately, and all collectives
  // then end with an error.
  void set_abortable(c10::intrusive_ptr<c10d::Backend> backend);
  // Returns true if collectives of a broken group return without an error, which is the case for NCCL.
  bool aborts_silently() const { return aborts_silently_; }
  // Sets the size of the next group. Call this only while no group is broken.
  void set_world(int world) { world_ = world; }

  // Waits for a message between two ranks. If the group is broken meanwhile, throws the error for a lost rank.
  void wait(const c10::intrusive_ptr<c10d::Work>& message);
  // Wraps the group's collectives so that break_group() can end waits for them. All collectives on CPU tensors must be wrapped.
  BreakableWorks& collectives() { return collectives_; }

 private:
  void creation_begins();
  void creation_ends();
  void abort_backend();
  bool belongs_to_group(std::uint64_t cookie);
  void shut_connections();
  void connect_for_lost_ranks();
  void abort_messages();

  int world_;
  std::atomic<bool> broken_ = false;
  std::mutex sockets_mutex_;
  int creations_ = 0;
  std::set<std::uint64_t> others_;    // cookies of the sockets that existed before the group's creation
  std::set<std::uint64_t> of_group_;  // cookies of the sockets that were created during the group's creation
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::mutex messages_mutex_;
  std::set<c10::intrusive_ptr<c10d::Work>> messages_;
  BreakableWorks collectives_;
  std::mutex backend_mutex_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::intrusive_ptr<c10d::Backend> abortable_;
  std::atomic<bool> aborts_silently_ = false;
  std::jthread aborting_;
  std::jthread thread_;
};

}  // namespace ddprun::trainer
