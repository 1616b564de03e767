// Collectives of Gloo whose waiters can be released before the collective ends.
//
// The problem. If a connection ends in the middle of a collective, Gloo may not fail that collective (see the note [An
// operation that is cut off] in group_breaker.cpp). A thread that waits for Gloo's Work would then wait until the timeout of
// the group.
//
// The idea. guard() wraps each Work of Gloo in another Work with its own future. The future completes when Gloo's Work ends, or
// when GroupBreaker calls release_waiters(). After such a release, Gloo's threads may still be using the group and the tensors.
// So the owner of the group calls all_ended() to check whether the group can be destroyed. Any thread may call these functions.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <memory>

namespace ddprun::trainer {

class BreakableWorks {
 public:
  BreakableWorks();

  // Returns a Work that completes when `inner` completes, or when release_waiters() is called. Accepts only Works on CPU
  // tensors.
  c10::intrusive_ptr<c10d::Work> guard(const c10::intrusive_ptr<c10d::Work>& inner);

  // Completes all guarded collectives that have not ended, with the error for a lost rank.
  void release_waiters();
  // Waits for at most `timeout` until Gloo has ended all collectives. Returns true if all have ended. If the result is false,
  // Gloo's threads may still be using the group and the tensors.
  bool all_ended(std::chrono::milliseconds timeout);

 private:
  struct State;
  // Shared with the callbacks of Gloo's collectives, because some collectives may never end.
  std::shared_ptr<State> state_;
};

}  // namespace ddprun::trainer
