// A member is the part of an agent that follows the coordinator (a follower in Raft), as a pure state machine. It searches for
// the coordinator, runs workers in the rounds that the coordinator starts, and votes for a new coordinator if the coordinator
// is lost. Its actions are requests to the agent, for example to start workers with these ranks, to stop the workers, or to
// exit. Node (node.hpp) owns the member and carries its messages.
//
//     searching -- Welcome --> following -- Release, grant --> workers run -- RoundOver --> stop, Ready --> ...
//         ^------------ link closed, or no answer: workers stop ------------'
//
// The problem. A member that is cut off cannot distinguish a dead coordinator from a slow network. If its workers continued,
// they could train at the same time as a round without them. So each answer of the coordinator contains a grant, the time for
// which the workers may run from now on. The workers are stopped when the grant ends.
//
// The class owns the phase, the record, the link to the coordinator, and the state of this node's workers. leader_search.hpp
// decides which addresses to dial, voter.hpp when to vote, and worker_lease.hpp until when workers may run.
//
// The launcher's AgentState manages the workers of one node. In a multi-node job the agent has a member and an AgentState. The
// shell converts the actions of each of them into events of the other:
//     from Member                      to AgentState
//       StartWorkers                     starts the workers of this round
//       StopWorkers                      stops the workers (`immediately`: by SIGKILL), or holds them
//       StopAndSave, StopAt              the same path as a stop signal on one node
//       Finish                           the end, with this exit code
//     from AgentState                  to Member
//       the first failure of a round     FailureReport, sent immediately so that all nodes stop soon
//       RoundSwept                       WorkersEnded, or WorkersDone if all workers exited with code 0
//       StopReady                        StopReady
//       SignalArrived                    StopRequest; after a second signal AgentState kills the workers itself
// The restart policy (decide_restart) runs on the coordinator only, once for the whole job: it is CoordinatorSettings::judge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/member/action.hpp"
#include "rendezvous/member/clock_offset.hpp"
#include "rendezvous/member/leader_search.hpp"
#include "rendezvous/member/record.hpp"
#include "rendezvous/member/settings.hpp"
#include "rendezvous/member/voter.hpp"
#include "rendezvous/member/worker_lease.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

namespace member_event {
// All workers of the round, and all processes that they started, have exited. If `holds` is true, the workers have not exited:
// they keep their state and wait for the next round.
struct WorkersEnded {
  bool saved = false;                // true if the workers saved because of StopAndSave
  std::uint16_t master_port = 0;     // a free port, reserved for the process group of the next round
  std::optional<int> leaves_with{};  // if set, this node must leave the job permanently, with this exit code
  // true if the workers are held: they have not exited, and keep their state for the next round
  bool holds = false;
};
struct WorkersDone {  // replaces WorkersEnded if all workers exited with code 0
  std::uint16_t master_port = 0;
};
// The newest record of this node is on disk. Sent only if some messages had to wait until the record was on disk
// (record_gate.hpp).
struct RecordWritten {};
}  // namespace member_event
// Some events are messages that this node's agent sends to the coordinator. The member completes and forwards them:
//     FailureReport    A worker has failed. The first failure is sent immediately. A later failure is sent if it is the cause
//                      of the first failure. The agent itself stops the node's other workers. The member sets round, hostname
//                      and skew_ns.
//     StopRequest      This process has received a stop signal.
//     StopReady        The reply to StopAndSave. The member sets the round.
//     StoreQuery       A worker's key-value store request. The member sets the round.
//     ClusterQuery     A query about the whole job. Dropped if there is no coordinator. The answers arrive as JobAnswer.
//     NodeAnswer       The answer to NodeQuery. Its text is at most NodeQuery::max_bytes long.
using MemberEvent = std::variant<node_event::LinkOpened, node_event::LinkClosed, node_event::FromListener, node_event::Tick,
                                 FailureReport, StopRequest, StopReady, StoreQuery, ClusterQuery, NodeAnswer,
                                 member_event::WorkersEnded, member_event::WorkersDone, member_event::RecordWritten>;

class Member {
 public:
  // `record` is the record that an earlier process with the same node id has written; nullopt if the node id is new.
  Member(MemberSettings settings, std::optional<Record> record, Now now);

  std::vector<MemberAction> on(const MemberEvent& event, Now now);
  std::optional<Time> next_deadline() const;

  // ---- for the election of a coordinator (node.cpp) ----
  bool searching() const { return phase_ == Phase::kSearching; }
  // Returns true if the member has a coordinator, or if it only waits until its workers have ended.
  bool following() const { return phase_ == Phase::kFollowing || phase_ == Phase::kEnding; }
  bool over() const { return phase_ == Phase::kOver; }
  bool was_welcome() const { return was_welcome_; }
  bool has_workers() const { return workers_ == Workers::kRunning || workers_ == Workers::kStopping; }
  const Record& record() const { return record_; }
  const PersistentState& state() const { return record_.state; }
  Address leader_address() const { return leader_ ? leader_->address : Address{}; }
  std::uint64_t leader_term() const { return leader_ ? leader_->term : 0; }
  nanoseconds lease() const { return lease_; }
  // Returns the coordinator's listening address, taken from its releases. The address that this node dialed may be outdated,
  // or may now belong to another process.
  Address leader_listens() const;
  // Returns the position of this node in the list of candidates for the next election; 0 is the first candidate.
  std::size_t candidate_rank() const { return rendezvous::candidate_rank(record_, settings_.node); }
  Time may_vote_at() const { return voter_.may_vote_at(lease_); }
  // Returns the earliest time at which this node may be a candidate. If this node has voted for another candidate, it first
  // waits for the time in which that candidate should have won.
  Time may_campaign_at() const { return voter_.may_campaign_at(lease_); }
  const Roster& roster() const { return record_.roster; }
  void set_own_host(const std::string& own_host) { settings_.own_host = own_host; }
  // Sets the field `run_directory` of the next Hello (NodeDescription).
  void set_lock_holder(std::uint64_t holder) { settings_.run_directory = holder; }
  // Returns the TransferLeadership message of the last coordinator, if that coordinator chose this node as its successor;
  // nullptr if it did not. The message is dropped when this node follows another coordinator.
  const TransferLeadership* leadership_transfer() const { return leadership_transfer_ ? &*leadership_transfer_ : nullptr; }
  // Adds the address of a node that may be the coordinator, or may have the coordinator's address.
  void add_hint(const Address& address) { search_.hint(address, searching(), now_.steady); }
  // Returns the addresses at which other nodes of the job may search for a coordinator.
  std::vector<Address> known_addresses() const { return search_.addresses(others_of(record_, settings_.node)); }
  Hello hello(const std::string& local_host);
  // Call this when another node of the round that also searches for a coordinator has reported the end of the job.
  void learn_end(const Ending& ending) {
    if (!knows_end()) ending_ = ending;
  }

  // ---- for the election of a coordinator; these calls add actions, so call take() after each of them ----
  std::vector<MemberAction> take() { return std::exchange(actions_, {}); }
  // Records this node's vote for itself in `term`. Returns false if this node has already promised that term or a later one.
  bool promise(std::uint64_t term, Now now);
  // Records the nodes of a round that this node, as the coordinator, is about to start. Call this before the release is sent.
  void keep_roster(Roster roster);
  // Call this when another node reports that it has taken part in a round of this job. If this node has not taken part in any
  // round, it records that the job may be running elsewhere.
  void note_job_elsewhere();
  // Call this when the coordinator is certainly dead. The node had promised not to vote for a while after the last message of
  // the coordinator. This call ends that promise.
  void leader_is_dead();
  // Closes the member's links. Call this before another Member replaces this object.
  void abandon() { search_.end(std::nullopt, actions_); }

 private:
  // kEnding: the node waits until its workers have ended, and then exits.
  enum class Phase { kSearching, kFollowing, kEnding, kOver };
  // The kind of save that StopAndSave has requested. After the save, the job ends (kThenEnd), or continues without some nodes
  // (kThenContinue).
  enum class Save { kNone, kThenEnd, kThenContinue };
  struct Leader {
    LinkId link = 0;
    std::uint64_t term = 0;
    Address address{};
    std::string hostname{};
  };

  void handle(const node_event::LinkOpened& event);
  void handle(const node_event::LinkClosed& event);
  void handle(const node_event::FromListener& event);
  void handle(const node_event::Tick&) {}  // no action needed: on() calls tick() after each event
  void handle(const FailureReport& event);
  void handle(const member_event::WorkersEnded& event);
  void handle(const member_event::WorkersDone& event);
  void handle(const StopRequest& event);
  void handle(const StopReady& event);
  void handle(const StoreQuery& event);
  void handle(const ClusterQuery& event) { send_to_leader(event); }
  void handle(const NodeAnswer& event) { send_to_leader(event); }
  void handle(const member_event::RecordWritten&);

  void receive(LinkId link, const Welcome& message);
  void receive(LinkId link, const Refused& message);
  void receive(LinkId link, const Redirect& message);
  void receive(LinkId link, const Release& message);
  void receive(LinkId link, const RoundOver& message);
  void receive(LinkId link, const StopAndSave& message);
  void save_held_state(const StopAndSave& order);
  void receive(LinkId link, const StopAt& message);
  void receive(LinkId link, const JobOver& message);
  void receive(LinkId link, const ProposeEnd& message);
  void receive(LinkId link, const TransferLeadership& message);
  void receive(LinkId link, const Waiting& message);
  void receive(LinkId link, const MayLeave& message);
  void receive(LinkId link, const Pong& message);
  void receive(LinkId link, const VoteRequest& message);
  void receive(LinkId link, const StoreAnswer& message);
  void receive(LinkId link, const NodeQuery& message) {
    if (leads(link)) act(message);
  }
  void receive(LinkId link, const JobAnswer& message) {
    if (leads(link)) act(message);
  }
  // Resumed and Received need no action here, because the session layer (rendezvous/node) handles them.
  void receive(LinkId, const Resumed&) {}
  void receive(LinkId, const Received&) {}

  // ---- the coordinator ----
  void enter(Phase phase) { phase_ = phase; }
  // `failed_host`: the host name of the lost coordinator's node; empty if that node did not fail.
  void search(const std::string& why, const std::string& failed_host);
  void lose_leader(const std::string& why, bool immediately);
  void ping();
  void vote(LinkId link, const VoteRequest& request);
  bool leads(LinkId link) const { return leader_ && leader_->link == link; }
  bool coordinates() const { return leads(kSelfLink); }
  void send_to_leader(FromMember message);
  void remember() { act(member_action::Remember{record_, settings_.node}); }

  // ---- the workers ----
  void start_if_granted();
  void stop_workers(member_action::StopWorkers order);
  void workers_ended(const member_event::WorkersEnded& event, bool done);
  bool may_leave() const;
  bool got_signal() const { return stop_.signal != 0; }
  bool is_saving() const { return save_ != Save::kNone; }
  // Returns true if the node leaves because of a stop signal. The coordinator decides when the node leaves, because it may be
  // necessary to save the workers' state first. If there is no coordinator, the node leaves immediately.
  bool leaves() const { return got_signal() && (!leader_ || leave_allowed_); }
  // Returns true if this node has a rank in its newest round, and its workers have not finished that round. A round that has
  // ended remains the newest round until the next round starts.
  bool in_round() const { return record_.state.current.rank >= 0 && workers_ != Workers::kDone; }
  void send_ready(const RoundId& round);

  // Returns true if the end of the job was proposed to this node for its current round. A proposal for an older round is void,
  // because the job has started another round after that round.
  bool knows_end() const { return ending_.exists() && ending_.origin == record_.state.current.origin(); }
  void tick();
  milliseconds patience() const {
    if (!was_welcome_) return settings_.join_timeout;
    return is_other_of_two(record_) ? settings_.rejoin_for / 2 : settings_.rejoin_for;
  }
  using End = node_action::Finish::End;
  using StopReason = member_action::StopWorkers::Reason;
  void leave(const std::string& why, node_action::Finish end);
  node_action::Finish end_after_saving(End end) const;
  node_action::Finish end_of_search() const;
  void finish(node_action::Finish end);
  template <class Action>
  void act(Action action) {
    actions_.emplace_back(std::move(action));
  }
  void notify(NodeNotice::Kind kind, std::string text) { act(NodeNotice{.kind = kind, .text = std::move(text)}); }

  MemberSettings settings_;
  Now now_;
  std::vector<MemberAction> actions_;
  Phase phase_ = Phase::kSearching;
  Record record_;

  // ---- parts ----
  LeaderSearch search_;
  Voter voter_;
  WorkerLease worker_lease_;
  ClockOffset clock_;

  // ---- the coordinator that this member searches for or follows ----
  Time started_at_;
  Time searching_since_{};
  bool was_welcome_ = false;  // true if a coordinator has sent a Welcome to this process
  bool was_refused_ = false;
  std::uint64_t hellos_ = 0;
  std::optional<Leader> leader_;
  nanoseconds lease_;
  std::int64_t leader_stamp_ = 0;
  std::optional<TransferLeadership> leadership_transfer_;
  Time next_ping_{};

  // ---- the workers ----
  Workers workers_ = Workers::kNone;
  RoundId workers_round_{};
  // the failure of this node's workers in the current round; sent again to each new coordinator
  std::optional<FailureReport> failure_;
  std::optional<Release> pending_start_;  // release whose workers start when the coordinator's grant is long enough
  std::uint16_t master_port_ = 0;
  Save save_ = Save::kNone;
  bool saved_ = false;
  StopRequest stop_;            // this node's stop request; its signal is 0 if there is none
  bool leave_allowed_ = false;  // true if the coordinator has answered `stop_` with MayLeave
  Ending ending_;               // the end of the job, if a coordinator has proposed it to this node
  node_action::Finish finish_;  // used in phase kEnding: the action to carry out when the workers have ended
};

}  // namespace ddprun::rendezvous
