// All that one agent is in the rendezvous: always a member, a candidate when there is no coordinator, and the coordinator when
// it leads. One pure state machine for the shell: links, messages, the time and what its workers do go in; links to dial,
// messages to send and simple orders (start these workers, stop them, the job is over) come out. The shell (and the simulator)
// owns the sockets and one timer, for next_deadline(); a link that this node did not dial speaks FromMember, one it dialled
// FromCoordinator.
//
// It owns the three machines, the messages on their way between those of this node, the links that others dialled, and those by
// which its coordinator announces itself where nodes may be that don't know it.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/member/member.hpp"
#include "rendezvous/node/arbitration.hpp"
#include "rendezvous/node/leader_session.hpp"
#include "rendezvous/node/member_sessions.hpp"
#include "rendezvous/node/memory.hpp"
#include "rendezvous/node/past.hpp"
#include "rendezvous/node/succession.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

struct NodeSettings {
  MemberSettings member{};
  CoordinatorSettings coordinator{};  // what it would lead with; self and run are the member's
  bool leads_first = false;           // --node-rank 0, or the owner of the endpoint: it coordinates a job that never was
  bool alone = false;                 // the user's word, or a proof: no earlier start of this job runs elsewhere
};

namespace node_event {
struct Begin {};
struct LinkOpened {  // dialled by this node, or accepted
  LinkId link = 0;
  std::string local_host{};  // of the socket, for dialled ones
};
struct LinkClosed {  // or could not be opened
  LinkId link = 0;
  bool may_return = false;  // the network broke it, or is in the way: the process at the other end may still be there
};
struct FromDialler {  // over an accepted link
  LinkId link = 0;
  FromMember message{};
};
struct FromListener {  // over a dialled link
  LinkId link = 0;
  FromCoordinator message{};
};
struct StoreAnswered {  // to ServeStore, but for kSelfLink
  LinkId link = 0;
  StoreAnswer answer{};
};
struct Tick {};
// The guardian of the dead coordinator of that round has said so, with this node's key: its workers are gone, and no process
// there goes on with its identity.
struct Farewell {
  RoundId round{};
};
// To AskArbiter. `why`, of kNone: for people, with the arbiter's name.
struct ArbiterAnswered {
  Ballot ballot{};
  BallotAnswer answer = BallotAnswer::kNone;
  std::string why{};
};
// The lock of this node's run directory: who holds it, as Hello::run_directory.
struct SawRunDirectory {
  std::uint64_t holder = 0;
};
// What happens to this node's workers, to it, and what they ask.
struct Local {
  MemberEvent event{};
};
}  // namespace node_event
using NodeEvent = std::variant<node_event::Begin, node_event::LinkOpened, node_event::LinkClosed, node_event::FromDialler,
                               node_event::FromListener, node_event::StoreAnswered, node_event::Tick, node_event::Farewell,
                               node_event::ArbiterAnswered, node_event::SawRunDirectory, node_event::Local>;

namespace node_action {
struct ToDialler {  // over an accepted link
  LinkId link = 0;
  FromCoordinator message{};
};
struct ToListener {  // over a dialled link
  LinkId link = 0;
  FromMember message{};
};
struct CloseLink {  // after what was sent before; LinkClosed need not follow
  LinkId link = 0;
};
struct ServeStore {  // answer with a StoreAnswer over the link; kSelfLink: a worker of this node
  LinkId link = 0;
  StoreAsk ask{};
};
// For this node's id, which it has for ever. Answer with ArbiterAnswered, within a fifth of the lease.
struct AskArbiter {
  Ballot ballot{};
  NodeId self{};
};
struct Forget {};  // the job is over for this node: what is remembered of it goes
struct Finish {    // nothing is left to do
  int exit_code = 0;
  std::string why{};
};
}  // namespace node_action
using NodeAction =
    std::variant<node_action::ToDialler, node_action::ToListener, node_action::CloseLink, node_action::ServeStore,
                 node_action::AskArbiter, node_action::Forget, node_action::Finish, coordinator_action::Entrust,
                 member_action::Dial, member_action::Remember, member_action::StartWorkers, member_action::ExtendGrant,
                 member_action::StopWorkers, member_action::DismissHeld, member_action::StopAndSave, member_action::StopAt,
                 member_action::AnswerStore, member_action::GotJob, member_action::Say>;

class Node {
 public:
  // `settings` has the identity of a node that nobody knows; this one takes it unless it continues another.
  Node(NodeSettings settings, Memory memory, Now now);

  // Feeds one event; the actions are to be carried out in order. After Finish no event has an effect.
  std::vector<NodeAction> on(const NodeEvent& event, Now now);
  std::optional<Time> next_deadline() const;

  const Coordinator* coordinator() const { return coordinator_ ? &*coordinator_ : nullptr; }
  const Member& member() const { return member_; }
  // What the work is measured by: electors that were counted, and members by its coordinator.
  std::int64_t counted() const { return succession_.counted() + (coordinator_ ? coordinator_->counted() : 0); }
  // Members whose connection was reset, and that may come back.
  std::int64_t away() const { return sessions_.away(); }
  // Whether it looks for a job in which an earlier process of it took part, and nobody of it has answered yet.
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
  void handle(const node_event::FromDialler& event);
  void handle(const node_event::FromListener& event);
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

  NodeId unknown_id_;  // which nobody knows
  Past past_;
  NodeSettings settings_;
  Now now_;
  std::vector<NodeAction> actions_;
  bool said_stuck_ = false;
  std::deque<Inside> inside_;  // on their way
  Member member_;
  Succession succession_;
  Arbitration arbitration_;
  LeaderSession leader_session_;
  MemberSessions sessions_;
  std::optional<Coordinator> coordinator_;
  std::set<LinkId> accepted_;       // dialled by others, as the machines know them
  std::vector<Address> places_;     // to announce this coordinator at: known when it began to lead
  std::set<LinkId> announcements_;  // dialled by this node's coordinator
  LinkId next_announcement_link_ = 1;
  Time next_announcement_{};
  std::optional<RoundId> coordinator_died_in_;  // round of two, of which this node is the other one
  std::optional<Time> stepped_down_;
  bool unfit_ = false;                         // to lead with the workers that it had when it stepped down: they don't end
  std::optional<node_action::Finish> finish_;  // said once the coordinator, if it is here, has told everybody
  bool finished_ = false;
};

}  // namespace ddprun::rendezvous
