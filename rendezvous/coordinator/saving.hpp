// How workers stop after a signal: all nodes report how many steps they have started, the coordinator sends the largest number
// as the step at which all stop, and waits until each node has saved and ended. The coordinator makes one of these when the
// signal comes, and finishes the job when it is done. Pure.
//
// This class owns which nodes have not answered yet, which have not ended yet, and the step.
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
  // Asks these nodes of the running round, or of the round that is over (`order`.held).
  Saving(const StopAndSave& order, const std::vector<Peer*>& nodes, Outbox& outbox);

  void hear(const Peer& peer, const StopReady& message, Outbox& outbox);
  void hear(const Peer& peer, const Stopped& message);
  void done(const Peer& peer) { unanswered_.erase(peer.hello.node); }
  void lost(const Peer& peer);
  // The step is known, since no node is left that could name a later one, and it was not sent yet.
  bool knows_step() const { return !step_told_ && unanswered_.empty(); }
  void tell_step(const std::vector<Peer*>& nodes, Outbox& outbox);

  bool step_is_told() const { return step_told_; }
  bool over() const { return unsaved_.empty(); }
  bool all_saved() const { return all_saved_; }
  std::size_t waits_for() const { return unsaved_.size(); }
  int signal() const { return signal_; }
  // The job's exit code, when saving is done.
  int exit_code() const;
  std::string why() const;

 private:
  RoundId round_;
  std::int32_t signal_;
  NodeIds unanswered_;
  NodeIds unsaved_;  // they have not ended
  std::int64_t step_ = -1;
  bool step_told_ = false;
  bool all_saved_ = true;
};

}  // namespace ddprun::rendezvous
