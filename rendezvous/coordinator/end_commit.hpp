// Ends a job in two phases, like a two-phase commit (propose, then announce). The code is pure: no I/O, no clock.
//
// The problem. Suppose the coordinator sends only JobOver, and dies before all nodes have it. Then the nodes without the
// message elect another coordinator, which runs the finished job again.
//
// The idea. The coordinator first proposes the end to all nodes (ProposeEnd). It sends JobOver only after all connected nodes
// have accepted, and these nodes are a majority of the round. Until the round is committed (quorum.hpp), they must also be a
// majority of the previous round. Any later coordinator needs the vote of at least one of these nodes. It receives the proposed
// end from that node and completes it.
//
// This class stores which nodes have answered, and which answers are still missing.
#pragma once

#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/quorum.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

class EndCommit {
 public:
  void begin(const Config& round, const Config& previous, const Peers& peers) {
    *this = EndCommit();
    current_tally_ = Tally(round);
    previous_tally_ = Tally(previous);
    for (const auto& [id, peer] : peers.all()) {
      if (peer.departed) count(peer);  // a departed node counts without an answer, because its workers never run again
      if (peer.connected()) await(peer);
    }
  }
  // Call this when a node joins after the proposal. The end then also needs an answer of this node, which may be a new process
  // that has no record of the proposed end.
  void await(const Peer& peer) { awaited_.insert(peer.hello.node); }
  void lost(const Peer& peer) {
    if (peer.departed) count(peer);
    awaited_.erase(peer.hello.node);
  }
  void answered(const Peer& peer) {
    count(peer);
    awaited_.erase(peer.hello.node);
  }
  bool enough(const Rules& rules) const {
    return awaited_.empty() && current_tally_.enough(rules) && previous_tally_.enough(rules);
  }
  // Call this when the current round is committed. From then on no majority of the previous round is needed.
  void committed() { previous_tally_ = Tally(); }
  std::size_t waits_for() const { return awaited_.size(); }

 private:
  void count(const Peer& peer) {
    if (!counted_.insert(peer.hello.node).second) return;
    current_tally_.add(peer.rank);
    previous_tally_.add(peer.previous_rank);
  }

  Tally current_tally_;
  Tally previous_tally_;
  NodeIds counted_;
  NodeIds awaited_;
};

}  // namespace ddprun::rendezvous
