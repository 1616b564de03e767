// Collectives whose waiter can be released before they end. If a connection ends while Gloo sends, Gloo may not notice that
// this operation is over (see group_breaker.cpp). Its own Work would then end only at the group's timeout. GroupBreaker
// releases the waiters. The owner of the group calls all_ended() to find out whether it can be destroyed.
//
// Thread-safe.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <memory>

namespace ddprun::trainer {

class BreakableWorks {
 public:
  BreakableWorks();

  // The result ends when `inner` ends, or when let_go() is called. On the CPU only.
  c10::intrusive_ptr<c10d::Work> guard(const c10::intrusive_ptr<c10d::Work>& inner);

  // Fails every wait for a collective that has not ended, with the error of a lost peer.
  void let_go();
  // Waits until all collectives have ended, at most `patience`. Returns whether they have. If not, Gloo's threads still use the
  // group and the tensors.
  bool all_ended(std::chrono::milliseconds patience);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the callbacks of collectives that never end
};

}  // namespace ddprun::trainer
