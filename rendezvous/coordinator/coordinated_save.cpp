#include "rendezvous/coordinator/coordinated_save.hpp"

#include <algorithm>

namespace ddprun::rendezvous {

CoordinatedSave::CoordinatedSave(const StopAndSave& order, const std::vector<Peer*>& nodes, Outbox& outbox)
    : round_(order.round), signal_(order.signal) {
  for (const Peer* peer : nodes) {
    unsaved_.insert(peer->hello.node);
    if (!peer->done) unanswered_.insert(peer->hello.node);
    outbox.send(*peer, order);
  }
}

void CoordinatedSave::receive(const Peer& peer, const StopReady& message, Outbox& outbox) {
  if (step_sent_) {  // the node repeats its StopReady after the step was chosen
    if (step_ >= 0 && unsaved_.contains(peer.hello.node)) outbox.send(peer, StopAt{.round = round_, .step = step_});
    return;
  }
  if (unanswered_.erase(peer.hello.node) > 0) step_ = std::max(step_, message.started);
}

void CoordinatedSave::receive(const Peer& peer, const Stopped& message) {
  unanswered_.erase(peer.hello.node);
  if (unsaved_.erase(peer.hello.node) > 0) all_saved_ = all_saved_ && message.saved;
}

void CoordinatedSave::lost(const Peer& peer) {
  unanswered_.erase(peer.hello.node);
  if (unsaved_.erase(peer.hello.node) > 0 && !peer.departed && !peer.done) all_saved_ = false;
}

void CoordinatedSave::send_step(const std::vector<Peer*>& nodes, Outbox& outbox) {
  step_sent_ = true;
  if (step_ < 0) return;
  for (const Peer* peer : nodes) {
    if (unsaved_.contains(peer->hello.node)) outbox.send(*peer, StopAt{.round = round_, .step = step_});
  }
}

}  // namespace ddprun::rendezvous
