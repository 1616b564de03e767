// Stores the release of the current round, and the next release while it waits for the resolver. JobLink owns it. The code is
// pure: no I/O, no clock.
//
// A new release may wait for the resolver for up to two seconds. Held workers keep running in that time, and their events and
// store replies must use the ranks of the current round. The next release therefore becomes the current one only when it is
// passed to AgentState.
#pragma once

#include <optional>
#include <utility>

#include "rendezvous/protocol/message.hpp"

namespace ddprun {

class ReleaseState {
 public:
  const rendezvous::Release& current() const { return current_; }
  // Returns the release that waits for the resolver, or the current one if none waits.
  const rendezvous::Release& newest() const { return next_ ? *next_ : current_; }
  void announce(rendezvous::Release release) { next_ = std::move(release); }
  // Turns the waiting release into the current one. Returns false if no release waits.
  bool begin_next() {
    if (!next_) return false;
    current_ = *std::exchange(next_, std::nullopt);
    return true;
  }

 private:
  rendezvous::Release current_;
  std::optional<rendezvous::Release> next_;
};

}  // namespace ddprun
