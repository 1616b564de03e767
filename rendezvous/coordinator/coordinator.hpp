// The coordinator of a job (a leader in Raft). It decides when a round (one start of all workers) starts and ends, which nodes
// take part in it, and when the job ends. It is a pure state machine. Its events are connections, messages and the time; its
// actions are messages and notices. Node (node.hpp) owns a coordinator while this node leads. The coordinator reaches the
// member on its own node over kSelfLink.
//
//     gathering -> running -> ending -> [pausing] -> gathering ...      a failure, or a change of members
//                  running -> saving -> committing end -> over          a signal
//                  running -> committing end -> over                    all done
//                  running -> [saving] -> ending -> handed over         a signal to its own node, when the others continue
//        ending -> [saving] -> committing end -> over                   no further restart
//
// The problem. Each node observes a failure differently. Suppose a worker on node B crashes. A moment later the workers on
// nodes A and C fail as well, because their peer is gone. If each node decided alone, they could count three restarts for one
// crash, and disagree about ranks. So one node decides for all. But the deciding node can die, freeze or be cut off between
// any two messages.
//
// The idea. A round ends at the first failure report. But the failure is judged later, when all workers of the round have
// ended or are held. In the example, suppose that the report of node A arrives first. The coordinator sends RoundOver to all
// nodes, because their workers could wait for a dead peer without a limit. Then the report of B arrives and replaces the
// report of A as the cause, because a lost peer is always the consequence of another failure. Among all other failures, the
// earliest is the cause. When the last node is Ready, the restart policy judges the crash on B, and the whole job counts one
// restart. If a node was lost in the meantime, the job counts no restart, because a lost node makes workers fail.
//
// The loss of the coordinator must not lose its state. Each release carries the restart counts, and each Hello carries the
// rounds that its sender has recorded. So the next coordinator restores this state from the Hellos of the nodes that elected
// it. The coordinator leads as long as a majority of the round's nodes answers, and otherwise steps down (leader_lease.hpp,
// rules.hpp). It never grants workers more time than its own lease has left, so all grants end before another node can lead. A
// process that was frozen may resume with an expired lease and a full queue. The process must not answer the queued messages.
// So on() checks the lease before it handles an event.
//
// Alternatives tried. We tried to remove each of the four waits below. Without any one of them, the simulator finds failures
// (docs/internals/decisions):
//   1. The next round starts only after a majority has installed the last round. Without this wait, a coordinator needed
//      majorities of three rounds, and jobs hung.
//   2. A node counts as ready only after it has answered its Welcome. A Hello may arrive seconds after its machine lost power.
//   3. After a stop signal to one node, the time stop_call must pass before that node may leave. A scheduler signals all nodes
//      of a job, but not at the same moment. Without this wait, the first node left, and the job ended without a saved state.
//   4. The job's end is final only after a majority has recorded it (end_commit.hpp). Without this wait, the next coordinator
//      ran a finished job again.
// The wait for the end of the workers is limited, because a worker that is stuck in the kernel never ends (late_nodes.hpp).
//
// The cost. All decisions pass through one node. If that node is lost without a leadership transfer or a death notice, the job
// has no coordinator for at least 1.25 leases.
//
// The class owns the phase, the state of the running round, the restart budget, and the deadlines. Other classes own the rest:
//   connected nodes                        peers.hpp, pending_connections.hpp, flap_damper.hpp
//   nodes of the round                     round_progress.hpp
//   nodes that count for a majority        membership.hpp
//   the lease                              leader_lease.hpp
//   the stop after a signal                orderly_stop.hpp
//   the leadership transfer                leadership_transfer.hpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/coordinator/bootstrap.hpp"
#include "rendezvous/coordinator/cluster_queries.hpp"
#include "rendezvous/coordinator/end_commit.hpp"
#include "rendezvous/coordinator/join_barrier.hpp"
#include "rendezvous/coordinator/late_nodes.hpp"
#include "rendezvous/coordinator/leader_lease.hpp"
#include "rendezvous/coordinator/leadership_transfer.hpp"
#include "rendezvous/coordinator/orderly_stop.hpp"
#include "rendezvous/membership/flap_damper.hpp"
#include "rendezvous/membership/membership.hpp"
#include "rendezvous/membership/peers.hpp"
#include "rendezvous/membership/pending_connections.hpp"
#include "rendezvous/membership/reserves.hpp"
#include "rendezvous/membership/round_progress.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

namespace coordinator_event {
// The arbiter (the third voter in a round of two nodes) has voted for this node. The vote is final.
struct ArbiterVotes {
  RoundId origin{};
};
}  // namespace coordinator_event
using CoordinatorEvent = std::variant<node_event::LinkOpened, node_event::LinkClosed, node_event::FromDialler, node_event::Tick,
                                      coordinator_event::ArbiterVotes>;

class Coordinator {
 public:
  Coordinator(CoordinatorSettings settings, const Authority& authority, Now now);
  // not copyable, because the members of a coordinator have references to each other
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Handles one event. The caller must carry out the returned actions in the given order.
  std::vector<CoordinatorAction> on(const CoordinatorEvent& event, Now now);
  // Returns the time at which the caller must send the next Tick. Returns nullopt if no Tick is needed.
  std::optional<Time> next_deadline() const;

  // Returns the two-node rounds in which the other node does not answer. The caller must query the arbiter of each of them now
  // (leader_lease.hpp).
  std::vector<Config> alone_in() const {
    const bool ends = phase_ == Phase::kOver || phase_ == Phase::kSteppedDown;
    return ends ? std::vector<Config>() : leader_lease_.alone_in(now_.steady);
  }

  // Describes the condition for which the coordinator currently waits, for messages and for the simulator.
  std::string waits_for() const;
  // Returns true if a node has requested to leave after a stop signal, if workers are saving, or if the job is about to end.
  bool is_stopping() const { return stop_.is_pending() || phase_ == Phase::kSaving || phase_ == Phase::kCommittingEnd; }
  std::uint64_t term() const { return term_; }
  RoundId round() const { return membership_.current().id; }
  std::int64_t counted() const { return leader_lease_.counted(); }
  // Returns true if one of the connected nodes listens on that address.
  bool knows(const Address& address) const { return peers_.knows(address); }

 private:
  enum class Phase { kGathering, kRunning, kEnding, kPausing, kSaving, kCommittingEnd, kOver, kSteppedDown };
  void enter(Phase phase) { phase_ = phase; }
  bool is_between_rounds() const {
    return phase_ == Phase::kEnding || phase_ == Phase::kGathering || phase_ == Phase::kPausing;
  }

  // ---- events ----
  void handle(const node_event::LinkOpened& event) { pending_connections_.add(event.link, now_.steady); }
  void handle(const node_event::LinkClosed& event);
  void handle(const node_event::FromDialler& event);
  void handle(const node_event::Tick&);
  void handle(const coordinator_event::ArbiterVotes& event);
  void receive(Peer& peer, const Hello&) { close_and_lose({peer.hello.node}, "sent a second hello"); }
  void receive(Peer& peer, const Ready& message);
  void receive(Peer& peer, const FailureReport& message);
  void receive(Peer& peer, const EndAccepted& message);
  void receive(Peer& peer, const Done& message);
  void receive(Peer& peer, const StopRequest& message);
  void receive(Peer& peer, const StopReady& message);
  void receive(Peer& peer, const Stopped& message);
  void receive(Peer& peer, const Leave& message);
  void receive(Peer& peer, const Ping& message);
  void receive(Peer&, const Vote&) {}  // A vote that arrives here is late, because this node has already won the election.
  void receive(Peer& peer, const StoreQuery& message);
  void receive(Peer& peer, const ClusterQuery& message) { forward_query(peer, message, peers_, outbox_); }
  void receive(Peer& peer, const NodeAnswer& message) { forward_answer(peer, message, peers_, outbox_); }
  // Resume and Received need no action here, because the session layer (rendezvous/node) handles them.
  void receive(Peer&, const Resume&) {}
  void receive(Peer&, const Received&) {}

  // ---- nodes that join ----
  void handle_hello(LinkId link, const Hello& hello);
  void reject(LinkId link);
  void welcome(Peer& peer);
  void note_spare(const Peer& peer);

  // ---- lost nodes ----
  void close_and_lose(const std::vector<NodeId>& nodes, const std::string& why);
  void lose(const std::vector<NodeId>& nodes, const std::string& why);
  bool note_lost(const NodeId& id, const std::string& text);
  void drop_silent();
  void check_late_nodes();

  // ---- authority ----
  void check_authority();
  void step_down(coordinator_action::StepDown why);
  bool transfer_if_due();

  // ---- when a round starts ----
  void gather(milliseconds call);
  void advance();
  void form();
  void note_installed(Peer& peer);
  void note_committed();
  bool self_is_ready() const;
  bool inherits_round() const;
  bool all_are_ready() const;
  // Returns the number of ready spares that a new round would admit. Call this only while a round runs, because the nodes of
  // the round then do not count as ready.
  std::int64_t spares_ready() const { return peers_.ready() - ready_reserves(peers_, settings_); }

  // Ends a round, starts a round or ends the job, if the conditions are met. Call this after a change of the nodes or of their
  // workers.
  void settle();

  // ---- how a round ends ----
  enum class Others { kStop, kHold };  // whether the workers that did not fail are stopped, or keep their state and wait
  void end_round(OverReason reason, const std::string& why, Others others);
  void check_ended();
  void judge();

  // ---- how the job ends ----
  OrderlyStop::Round round_of_stop() const;
  void carry_out(const StopDecision& decision);
  void check_leaving() { carry_out(stop_.check_leaving(round_of_stop(), now_.steady)); }
  void check_saving();
  void note_done(Peer& peer, const RoundId& round);
  void check_done();
  void finish(const JobEnd& end);
  void propose_end(Peer& peer);
  void check_end_committed();
  void announce_end();

  void close(LinkId link);

  CoordinatorSettings settings_;
  Now now_;
  Outbox outbox_;
  Phase phase_ = Phase::kGathering;
  std::uint64_t term_ = 1;
  bool elected_ = false;

  // ---- parts ----
  PendingConnections pending_connections_;
  LateNodes late_nodes_;
  Peers peers_;
  FlapDamper flap_damper_;
  Membership membership_;
  Bootstrap bootstrap_;
  LeaderLease leader_lease_;
  JoinBarrier join_barrier_;
  RoundProgress round_progress_;
  LeadershipTransfer leadership_transfer_;
  OrderlyStop stop_;
  EndCommit end_commit_;  // used from kCommittingEnd on

  // ---- the current round, and how it ended ----
  Budget budget_;
  Release release_;                       // contains only the fields that are equal for all nodes
  bool held_ = false;                     // if true, workers of the ended round may keep their state and wait
  std::optional<FailureReport> failure_;  // cause of the round's end, from the reports received so far
  bool members_changed_ = false;  // a node was lost or left while the round ended, so the failure does not count as a restart
  bool judged_ = false;           // true if the restart policy has already judged the failure
  JobOver over_;

  std::optional<Time> absorb_at_;  // if set, the round ends at this time, to admit the nodes that joined late
  std::optional<Time> pause_ends_;
  Time over_at_{};
  std::optional<Time> linger_ends_;
};

}  // namespace ddprun::rendezvous
