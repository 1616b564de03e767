// Coordinates the save after a stop signal. When the signal arrives, the ranks may be in different steps, and a rank cannot
// finish a step without the other ranks. So each node reports how many steps it has started. The coordinator sends the largest
// number as the step after which all ranks save. Then it waits until the workers of each node have ended. OrderlyStop creates
// one CoordinatedSave object for each save. The code is pure: no I/O, no clock.
//
// Example: nodes A and B report 120 and 119 started steps. Both get StopAt{120}. So B runs one more step, and both save the
// same state.
//
// This class stores the step, the nodes that have not answered yet, and the nodes whose workers have not ended yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/membership/peers.hpp"

namespace ddprun::rendezvous {

class CoordinatedSave {
 public:
  // Sends `order` to `nodes`, which are the nodes of the running round. If order.held is true, the round has already ended,
  // and its workers have kept their state for the next round (held workers).
  CoordinatedSave(const StopAndSave& order, const std::vector<Peer*>& nodes, Outbox& outbox);

  void receive(const Peer& peer, const StopReady& message, Outbox& outbox);
  void receive(const Peer& peer, const Stopped& message);
  void done(const Peer& peer) { unanswered_.erase(peer.hello.node); }
  void lost(const Peer& peer);
  // Returns true if all nodes have reported their started steps, and StopAt has not been sent yet.
  bool knows_step() const { return !step_sent_ && unanswered_.empty(); }
  void send_step(const std::vector<Peer*>& nodes, Outbox& outbox);

  bool step_is_sent() const { return step_sent_; }
  bool over() const { return unsaved_.empty(); }
  bool all_saved() const { return all_saved_; }
  std::size_t waits_for() const { return unsaved_.size(); }
  int signal() const { return signal_; }

 private:
  RoundId round_;
  std::int32_t signal_;
  NodeIds unanswered_;
  NodeIds unsaved_;  // nodes whose workers have not ended yet
  std::int64_t step_ = -1;
  bool step_sent_ = false;
  bool all_saved_ = true;
};

}  // namespace ddprun::rendezvous
