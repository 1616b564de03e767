// Collectives whose waiter can be let go before they end. When a connection ends in the middle of what Gloo is sending, Gloo
// may not notice that this operation is over (group_breaker.cpp says why), and its own Work would be waited for until the
// group's timeout. GroupBreaker lets the waiters go; whoever owns the group asks whether it can be taken apart.
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

  // Ends as `inner` does, or when let_go() is called. On the CPU only.
  c10::intrusive_ptr<c10d::Work> guard(const c10::intrusive_ptr<c10d::Work>& inner);

  // Whoever waits for one that has not ended finds a lost peer.
  void let_go();
  // Whether all have ended, which is waited for. Of those that have not, Gloo's threads still use the group and the tensors.
  bool all_ended(std::chrono::milliseconds patience);

 private:
  struct State;
  std::shared_ptr<State> state_;  // also of the callbacks of those that never end
};

}  // namespace ddprun::trainer
