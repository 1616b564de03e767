// The release of the round to which this node's workers belong, and the next one while it waits for the resolver.
//
// Held workers keep running while a new release waits for up to two seconds. Their events and store replies must carry the
// ranks of their own round. So the next release becomes the current one only when it is passed to AgentState. Pure; part of
// JobLink.
#pragma once

#include <optional>
#include <utility>

#include "rendezvous/protocol/message.hpp"

namespace ddprun {

class RoundOfWorkers {
 public:
  const rendezvous::Release& current() const { return current_; }
  // The waiting release if there is one, or else the current one.
  const rendezvous::Release& newest() const { return next_ ? *next_ : current_; }
  void announce(rendezvous::Release release) { next_ = std::move(release); }
  // False if no release waits.
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
