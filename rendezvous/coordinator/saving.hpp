// How workers stop after a signal: all nodes say how many steps they have started, the coordinator tells them the largest
// number as the step at which all stop, and waits until each has saved and ended. The coordinator makes one of these when the
// signal comes, and finishes the job when it is over. Pure.
//
// It owns who has not answered yet, who has not ended yet, and the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/presence/peers.hpp"

namespace ddprun::rendezvous {

class Saving {
 public:
  // Asks these nodes of the running round, or of the one that is over (`order`.held).
  Saving(const StopAndSave& order, const std::vector<Peer*>& nodes, Outbox& outbox);

  void hear(const Peer& peer, const StopReady& message, Outbox& outbox);
  void hear(const Peer& peer, const Stopped& message);
  void done(const Peer& peer) { unanswered_.erase(peer.hello.node); }
  void lost(const Peer& peer);
  // Nobody is left who could name a later step, and it was not told yet.
  bool knows_step() const { return !step_told_ && unanswered_.empty(); }
  void tell_step(const std::vector<Peer*>& seated, Outbox& outbox);

  bool over() const { return unsaved_.empty(); }
  bool all_saved() const { return all_saved_; }
  std::size_t waits_for() const { return unsaved_.size(); }
  // The job's, when it is over.
  int exit_code() const;
  std::string why() const;

 private:
  RoundId round_;
  std::int32_t signal_;
  NodeIds unanswered_;
  NodeIds unsaved_;  // have not ended
  std::int64_t step_ = -1;
  bool step_told_ = false;
  bool all_saved_ = true;
};

}  // namespace ddprun::rendezvous
