// The save after a stop signal. All nodes report how many steps they have started. The coordinator sends the largest number as
// the step at which all stop. Then it waits until each node has saved and ended. The coordinator creates an object when the
// signal comes, and finishes the job when over() is true. Pure.
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
  // Sends the request to these nodes of the running round, or of the round that is over (`order`.held).
  Saving(const StopAndSave& order, const std::vector<Peer*>& nodes, Outbox& outbox);

  void hear(const Peer& peer, const StopReady& message, Outbox& outbox);
  void hear(const Peer& peer, const Stopped& message);
  void done(const Peer& peer) { unanswered_.erase(peer.hello.node); }
  void lost(const Peer& peer);
  // True if the step is final but was not sent yet: no remaining node can report a later one.
  bool knows_step() const { return !step_told_ && unanswered_.empty(); }
  void tell_step(const std::vector<Peer*>& nodes, Outbox& outbox);

  bool step_is_told() const { return step_told_; }
  bool over() const { return unsaved_.empty(); }
  bool all_saved() const { return all_saved_; }
  std::size_t waits_for() const { return unsaved_.size(); }
  int signal() const { return signal_; }
  // The job's exit code, valid after saving.
  int exit_code() const;
  std::string why() const;

 private:
  RoundId round_;
  std::int32_t signal_;
  NodeIds unanswered_;
  NodeIds unsaved_;  // nodes whose workers have not ended
  std::int64_t step_ = -1;
  bool step_told_ = false;
  bool all_saved_ = true;
};

}  // namespace ddprun::rendezvous
