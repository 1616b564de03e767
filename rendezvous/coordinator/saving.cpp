// Implementation of saving.hpp.
#include "rendezvous/coordinator/saving.hpp"

#include <algorithm>

#include "common/base/exit_code.hpp"

namespace ddprun::rendezvous {

Saving::Saving(const StopAndSave& order, const std::vector<Peer*>& nodes, Outbox& outbox)
    : round_(order.round), signal_(order.signal) {
  for (const Peer* peer : nodes) {
    unsaved_.insert(peer->hello.node);
    if (!peer->done) unanswered_.insert(peer->hello.node);
    outbox.send(*peer, order);
  }
}

void Saving::hear(const Peer& peer, const StopReady& message, Outbox& outbox) {
  if (step_told_) {  // the node was asked again
    if (step_ >= 0 && unsaved_.contains(peer.hello.node)) outbox.send(peer, StopAt{.round = round_, .step = step_});
    return;
  }
  if (unanswered_.erase(peer.hello.node) > 0) step_ = std::max(step_, message.started);
}

void Saving::hear(const Peer& peer, const Stopped& message) {
  unanswered_.erase(peer.hello.node);
  if (unsaved_.erase(peer.hello.node) > 0) all_saved_ = all_saved_ && message.saved;
}

void Saving::lost(const Peer& peer) {
  unanswered_.erase(peer.hello.node);
  if (unsaved_.erase(peer.hello.node) > 0 && !peer.departed && !peer.done) all_saved_ = false;
}

void Saving::tell_step(const std::vector<Peer*>& nodes, Outbox& outbox) {
  step_told_ = true;
  if (step_ < 0) return;
  for (const Peer* peer : nodes) {
    if (unsaved_.contains(peer->hello.node)) outbox.send(*peer, StopAt{.round = round_, .step = step_});
  }
}

int Saving::exit_code() const {
  return all_saved_ ? static_cast<int>(ExitCode::kPreempted) : 128 + signal_;
}

std::string Saving::why() const {
  return "stopped by signal " + std::to_string(signal_) + (all_saved_ ? " after saving" : " before all could save");
}

}  // namespace ddprun::rendezvous
