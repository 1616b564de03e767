// Ends a job in two phases, like a commit. Suppose the coordinator only sent that the job is over, and died meanwhile. The
// nodes without that message would elect another coordinator, which would run the finished job again. So it first announces the
// end (Conclude). It sends JobOver after all connected nodes have answered, together with a majority of the round. Until the
// round is committed, a majority of the previous round is needed too. A coordinator elected later learns the end from one of
// its electors, and completes it. Pure.
//
// This class owns which nodes have answered, and which answers are missing.
#pragma once

#include <cstdint>

#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/quorum.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

class Concluding {
 public:
  void begin(const Config& round, const Config& previous, const Peers& peers) {
    *this = Concluding();
    of_current_ = Tally(round);
    of_previous_ = Tally(previous);
    for (const auto& [id, peer] : peers.all()) {
      if (peer.departed) count(peer);  // its workers never run again
      if (peer.here()) await(peer);
    }
  }
  // A node has joined. It may be a new process that does not know of the end yet.
  void await(const Peer& peer) { awaited_.insert(peer.hello.node); }
  void lost(const Peer& peer) {
    if (peer.departed) count(peer);
    awaited_.erase(peer.hello.node);
  }
  void answered(const Peer& peer) {
    count(peer);
    awaited_.erase(peer.hello.node);
  }
  bool enough(const Rules& rules) const { return awaited_.empty() && of_current_.enough(rules) && of_previous_.enough(rules); }
  // The previous round no longer counts.
  void committed() { of_previous_ = Tally(); }
  std::size_t waits_for() const { return awaited_.size(); }

 private:
  void count(const Peer& peer) {
    if (!counted_.insert(peer.hello.node).second) return;
    of_current_.add(peer.rank);
    of_previous_.add(peer.previous_rank);
  }

  Tally of_current_;
  Tally of_previous_;
  NodeIds counted_;
  NodeIds awaited_;
};

}  // namespace ddprun::rendezvous
