// The rendezvous logic of one agent (a server in Raft), as one pure state machine. A node is always a member (a follower). It
// is a candidate while there is no coordinator, and it is also the coordinator while it leads.
//
// The events of a node are links, messages, the time, and events of its workers. The actions dial a link, send a message,
// start or stop workers, or end the process. The shell (or the simulator) owns the sockets, and one timer for next_deadline().
// A node receives FromMember messages over an accepted link, and FromCoordinator messages over a dialed link.
//
// This class owns three state machines (member, election, coordinator), the messages between them, and the accepted links.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/member/member.hpp"
#include "rendezvous/node/action.hpp"
#include "rendezvous/node/announcements.hpp"
#include "rendezvous/node/arbitration.hpp"
#include "rendezvous/node/departed_voters.hpp"
#include "rendezvous/node/leader_election.hpp"
#include "rendezvous/node/leader_session.hpp"
#include "rendezvous/node/member_sessions.hpp"
#include "rendezvous/node/previous_job.hpp"
#include "rendezvous/node/restored_state.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

struct NodeSettings {
  MemberSettings member{};
  // Used while the node leads. The fields self, run, arbiter and command are copied from `member`.
  CoordinatorSettings coordinator{};
  // True if this node starts a new job as the first coordinator, because it has --node-rank 0 or is the host of the endpoint.
  bool leads_first = false;
  // True if the user has confirmed with --force-new-job that this job is not still running elsewhere from an earlier
  // invocation of ddprun.
  bool alone = false;
};

class Node {
 public:
  // `settings` contains a new node id. If this process continues the job of an earlier process, the node uses the id of the
  // earlier process instead.
  Node(NodeSettings settings, RestoredState restored, Now now);

  // Handles one event. The caller must carry out the returned actions in order. After the action Finish, events have no effect.
  std::vector<NodeAction> on(NodeEvent event, Now now);
  std::optional<Time> next_deadline() const;

  const Coordinator* coordinator() const { return coordinator_ ? &*coordinator_ : nullptr; }
  const Member& member() const { return member_; }
  // Returns the total number of node visits in all counts of votes and leases so far. Tests use the number to measure the work
  // of elections.
  std::int64_t counted() const { return leader_election_.counted() + (coordinator_ ? coordinator_->counted() : 0); }
  // Returns the number of members that have lost their connection but may still resume their session.
  std::int64_t away() const { return sessions_.away(); }
  // Returns true while this node searches for the job of an earlier process, and no coordinator has sent a Welcome yet.
  bool searches_for_old_job() const { return previous_job_.remembers_round() && !member_.was_welcome() && !coordinator_; }

 private:
  void handle(const node_event::Begin&);
  void handle(const node_event::LinkOpened& event);
  void handle(const node_event::LinkClosed& event);
  void handle(node_event::FromDialler&& event);
  void handle(node_event::FromListener&& event);
  void handle(const node_event::StoreAnswered& event);
  void handle(const node_event::Tick&);
  void handle(const node_event::DeathNoticeReceived& event);
  void handle(const node_event::ArbiterAnswered& event);
  void handle(const node_event::RunDirectoryProbed& event) { member_.set_lock_holder(event.holder); }
  void handle(node_event::Local&& event) { for_member(std::move(event.event)); }

  // ---- sessions, which survive a reset of the connection ----
  void to_leader(LinkId link, FromMember message);
  void to_member(LinkId link, FromCoordinator message);
  void leader_connection_lost(const node_event::LinkClosed& event);
  void leader_connection_back(const Resumed& answer);
  void lose_leader_session();
  void resume(LinkId connection, const Resume& message);
  void lose(LinkId link);
  void check_sessions();

  // ---- the state machines inside this node ----
  void for_member(MemberEvent event) { internal_.emplace_back(std::move(event)); }
  // The call has no effect unless this node leads.
  void for_coordinator(CoordinatorEvent event) {
    if (coordinator_) internal_.emplace_back(std::move(event));
  }
  void run_internal();
  void carry_out(std::vector<MemberAction> actions);
  void carry_out(std::vector<CoordinatorAction> actions);
  void leader_is_dead() {
    member_.leader_is_dead();
    carry_out(member_.take());
  }
  void notify(NodeNotice::Kind kind, std::string text) { act(NodeNotice{.kind = kind, .text = std::move(text)}); }

  // ---- while this node does not lead ----
  void answer_hello(LinkId link, const Hello& hello);
  void redirect(LinkId link);
  void redirect_voters();
  LeaderElection::Candidate candidate() const;
  void campaign_if_due();
  std::vector<Config> alone_in() const;
  void query_arbiter_if_alone();
  bool knows_no_round() const { return !member_.record().knows_round(); }
  bool may_lead_again() const;
  bool may_campaign() const { return !coordinator_ && member_.searching() && !(unfit_ && member_.has_workers()); }

  // ---- the search for the job of an earlier process on this node, and the end of that search ----
  std::optional<Time> may_give_up_at() const;
  bool enough_fresh_nodes();
  void give_up_if_due();
  void note_job_elsewhere() {
    if (!settings_.member.rules.lost_job_is_remembered) return;
    member_.note_job_elsewhere();
    carry_out(member_.take());
  }

  // ---- leading ----
  void lead_unelected();
  void lead(const Authority& authority);
  void handle_announce_reply(LinkId link, const FromCoordinator& message);
  void step_down(const std::string& why);

  void drop(LinkId link);
  template <class Action>
  void act(Action action) {
    actions_.emplace_back(std::move(action));
  }

  NodeId unknown_id_;  // the node id that this node takes when it gives up its previous job
  PreviousJob previous_job_;
  NodeSettings settings_;
  Now now_;
  std::vector<NodeAction> actions_;
  bool stuck_reported_ = false;
  // queued events from one state machine of this node to another
  std::deque<std::variant<MemberEvent, CoordinatorEvent>> internal_;
  Member member_;
  LeaderElection leader_election_;
  Arbitration arbitration_;
  LeaderSession leader_session_;
  MemberSessions sessions_;  // sessions of the accepted links; the state machines use the session's link number
  std::uint64_t promised_;   // the promised term of the member at the last comparison in give_up_if_due()
  std::optional<Coordinator> coordinator_;
  Announcements announcements_;  // used while this node leads
  DepartedVoters departed_voters_;
  std::optional<Time> stepped_down_;
  // True if this node stepped down because its workers do not end. It must not lead again before they have ended.
  bool unfit_ = false;
  std::optional<node_action::Finish> finish_;  // the action to carry out when this node is no longer the coordinator
  bool finished_ = false;
};

}  // namespace ddprun::rendezvous
