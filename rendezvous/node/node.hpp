// One agent's complete part in the rendezvous (a server in Raft): always a member, a candidate if there is no coordinator, and
// the coordinator while it leads. It is one pure state machine for the shell. Links, messages, the time and events of the
// workers go in. Links to dial, messages to send and simple orders come out: start these workers, stop them, the job is over.
// The shell (or the simulator) owns the sockets and one timer, for next_deadline(). Accepted links carry FromMember to this
// node, dialed links FromCoordinator.
//
// This class owns the three state machines, the messages between them, the links that other nodes dialed, and the links over
// which a leading node announces its address.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/member/member.hpp"
#include "rendezvous/node/arbitration.hpp"
#include "rendezvous/node/farewell.hpp"
#include "rendezvous/node/leader_session.hpp"
#include "rendezvous/node/member_sessions.hpp"
#include "rendezvous/node/memory.hpp"
#include "rendezvous/node/past.hpp"
#include "rendezvous/node/succession.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

struct NodeSettings {
  MemberSettings member{};
  CoordinatorSettings coordinator{};  // used while it leads; self and run are copied from the member
  bool leads_first = false;           // --node-rank 0, or the owner of the endpoint: this node founds a job
  bool alone = false;                 // no earlier start of this job runs elsewhere, as given by the user or as proved
};

namespace node_event {
struct Begin {};
struct LinkOpened {  // dialed by this node, or accepted
  LinkId link = 0;
  std::string local_host{};  // the socket's local address, if this node dialed
  std::string own_host{};    // as MemberSettings::own_host, from all connections until now; empty: unchanged
};
struct LinkClosed {  // or failed to open
  LinkId link = 0;
  bool may_return = false;  // a network failure or block: the process at the other end may still run
};
struct FromDialler {  // received over an accepted link
  LinkId link = 0;
  FromMember message{};
};
struct FromListener {  // received over a dialed link
  LinkId link = 0;
  FromCoordinator message{};
};
struct StoreAnswered {  // the answer to ServeStore, except for kSelfLink
  LinkId link = 0;
  StoreAnswer answer{};
};
struct Tick {};
// The guardian of that round's dead coordinator has sent this with this node's key. It proves that the workers there are gone,
// and that no process there continues its identity.
struct Farewell {
  RoundId round{};
};
// The answer to AskArbiter. `why` is the reason for kNone, for messages, and contains the arbiter's name.
struct ArbiterAnswered {
  Ballot ballot{};
  BallotAnswer answer = BallotAnswer::kNone;
  std::string why{};
};
// The holder of the lock of this node's run directory, as in Hello::run_directory.
struct SawRunDirectory {
  std::uint64_t holder = 0;
};
// An event of this node's workers, a signal, or a request to the store.
struct Local {
  MemberEvent event{};
};
}  // namespace node_event
using NodeEvent = std::variant<node_event::Begin, node_event::LinkOpened, node_event::LinkClosed, node_event::FromDialler,
                               node_event::FromListener, node_event::StoreAnswered, node_event::Tick, node_event::Farewell,
                               node_event::ArbiterAnswered, node_event::SawRunDirectory, node_event::Local>;

namespace node_action {
struct ToDialler {  // sent over an accepted link
  LinkId link = 0;
  FromCoordinator message{};
};
struct ToListener {  // sent over a dialed link
  LinkId link = 0;
  FromMember message{};
};
struct CloseLink {  // after all messages that were sent before; LinkClosed need not follow
  LinkId link = 0;
};
struct ServeStore {  // reply with StoreAnswered; kSelfLink: the request is from a worker of this node
  LinkId link = 0;
  StoreAsk ask{};
};
// Ask the arbiter for its vote for this node. The arbiter votes once and never takes it back. Reply with ArbiterAnswered,
// within a fifth of the lease.
struct AskArbiter {
  Ballot ballot{};
  NodeId self{};
};
struct Forget {};  // the job is over for this node: remove its record
struct Finish {    // the node has nothing left to do
  int exit_code = 0;
  std::string why{};
};
}  // namespace node_action
using NodeAction =
    std::variant<node_action::ToDialler, node_action::ToListener, node_action::CloseLink, node_action::ServeStore,
                 node_action::AskArbiter, node_action::Forget, node_action::Finish, coordinator_action::Entrust,
                 member_action::Dial, member_action::Remember, member_action::StartWorkers, member_action::ExtendGrant,
                 member_action::StopWorkers, member_action::DismissHeld, member_action::StopAndSave, member_action::StopAt,
                 member_action::AnswerStore, member_action::BeAsked, member_action::HearAnswer, member_action::Say>;

class Node {
 public:
  // `settings` contains a new identity. The node uses it unless it continues an earlier process.
  Node(NodeSettings settings, Memory memory, Now now);

  // Handles one event. Carry out the actions in order. After Finish, events have no effect.
  std::vector<NodeAction> on(NodeEvent event, Now now);
  std::optional<Time> next_deadline() const;

  const Coordinator* coordinator() const { return coordinator_ ? &*coordinator_ : nullptr; }
  const Member& member() const { return member_; }
  // Number of electors, and of members of its coordinator, counted until now. Tests use it to measure the work.
  std::int64_t counted() const { return succession_.counted() + (coordinator_ ? coordinator_->counted() : 0); }
  // Number of members that may still resume a session whose connection was reset.
  std::int64_t away() const { return sessions_.away(); }
  // True while it looks for a job of which an earlier process was a member, and no node of that job has answered yet.
  bool looks_for_old_job() const { return past_.remembers_round() && !member_.was_welcome() && !coordinator_; }

 private:
  struct ToCoordinator {
    CoordinatorEvent event;
  };
  struct ToMember {
    MemberEvent event;
  };
  using Inside = std::variant<ToCoordinator, ToMember>;

  void handle(const node_event::Begin&);
  void handle(const node_event::LinkOpened& event);
  void handle(const node_event::LinkClosed& event);
  void handle(node_event::FromDialler&& event);
  void handle(node_event::FromListener&& event);
  void handle(const node_event::StoreAnswered& event);
  void handle(const node_event::Tick&);
  void handle(const node_event::Farewell& event);
  void handle(const node_event::ArbiterAnswered& event);
  void handle(const node_event::SawRunDirectory& event) { member_.saw_run_directory(event.holder); }
  void handle(const node_event::Local& event);

  // ---- connections that come back ----
  void to_leader(LinkId link, FromMember message);
  void to_member(LinkId link, FromCoordinator message);
  void leader_connection_lost(const node_event::LinkClosed& event);
  void leader_connection_back(const Resumed& answer);
  void lose_leader_session();
  void resume(LinkId connection, const Resume& message);
  void lose(LinkId link);
  void check_sessions();

  // ---- the machines inside ----
  void run_inside();
  void carry_out(std::vector<MemberAction> actions);
  void carry_out(std::vector<CoordinatorAction> actions);

  // ---- without a coordinator here ----
  void greet(LinkId link, const Hello& hello);
  void redirect(LinkId link);
  void redirect_electors();
  Succession::Candidate candidate() const;
  void consider_candidacy();
  void count_the_dead();
  std::vector<Config> alone_in() const;
  void consult_arbiter();
  void count_the_arbiter();
  bool knows_no_round() const { return !member_.record().knows_round(); }
  bool may_lead_again() const;
  bool may_stand() const { return !coordinator_ && member_.looking() && !(unfit_ && member_.has_workers()); }

  // ---- what it remembers ----
  std::optional<Time> may_give_up_at() const;
  bool enough_know_nothing();
  void consider_giving_up();
  void note_job_elsewhere() {
    if (!settings_.member.rules.lost_job_is_remembered) return;
    std::vector<MemberAction> actions;
    member_.note_job_elsewhere(actions);
    carry_out(std::move(actions));
  }

  // ---- leading ----
  void lead_unelected();
  void lead(const Authority& authority);
  void announce();
  void hear_announced(LinkId link, const FromCoordinator& message);
  void step_down(const std::string& why);

  void drop(LinkId link);
  template <class Action>
  void act(Action action) {
    actions_.emplace_back(std::move(action));
  }

  NodeId unknown_id_;  // an identity that no other node knows
  Past past_;
  NodeSettings settings_;
  Now now_;
  std::vector<NodeAction> actions_;
  bool said_stuck_ = false;
  std::deque<Inside> inside_;  // messages between the state machines of this node
  Member member_;
  Succession succession_;
  Arbitration arbitration_;
  LeaderSession leader_session_;
  MemberSessions sessions_;  // for the links that other nodes dialed, with the numbers that the state machines use
  std::uint64_t promised_;   // the term that this node had promised at the last check
  std::optional<Coordinator> coordinator_;
  std::vector<Address> places_;     // addresses where this coordinator announces itself; fixed when it starts to lead
  std::set<LinkId> announcements_;  // links dialed by this node's coordinator
  LinkId next_announcement_link_ = 1;
  Time next_announcement_{};
  std::optional<DeadCoordinator> dead_;  // set if this node is the other one of its round
  std::optional<Time> stepped_down_;
  bool unfit_ = false;  // it must not lead with the workers that it had when it stepped down, since they don't end
  std::optional<node_action::Finish> finish_;  // carried out after the coordinator of this node, if any, has informed all nodes
  bool finished_ = false;
};

}  // namespace ddprun::rendezvous
