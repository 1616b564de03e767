// Implementation of node.hpp. The first half passes events and messages between the state machines of one node and its links,
// over sessions that survive a reset of their connection. The second half is about leading. A node without a coordinator
// collects electors and becomes a candidate. A leading node announces itself to nodes that may not know it, and steps down.
//
// Note [Why this file is long]
// It is one state machine: any event may change who leads, and the routes of all messages depend on that. Parts with a separate
// state have separate files: the past, the support in an election, and the sessions of both sides.
#include "rendezvous/node/node.hpp"

#include <algorithm>
#include <utility>

#include "common/base/exit_code.hpp"
#include "rendezvous/coordinator/entry.hpp"

namespace ddprun::rendezvous {
namespace {

// Takes over the identity of the process that this one continues.
NodeSettings complete(NodeSettings settings, const Past& past) {
  if (past.self()) settings.member.id = past.self()->id;
  settings.coordinator.self = settings.member.id;
  settings.coordinator.run = settings.member.run;
  settings.coordinator.arbiter = settings.member.arbiter;
  settings.coordinator.command = settings.member.command;
  return settings;
}

}  // namespace

Node::Node(NodeSettings settings, Memory memory, Now now)
    : unknown_id_(settings.member.id),
      past_(std::move(memory), settings.alone, settings.member.rules),
      settings_(complete(std::move(settings), past_)),
      now_(now),
      member_(settings_.member, past_.record(), now),
      succession_(settings_.member.rules),
      arbitration_(settings_.member.rules, member_.state().current),
      leader_session_(settings_.member.rules, settings_.member.id, settings_.member.incarnation),
      sessions_(settings_.member.rules, settings_.coordinator.lease),
      promised_(member_.state().promised_term) {}

std::vector<NodeAction> Node::on(NodeEvent event, Now now) {
  now_ = now;
  if (finished_) return {};
  std::visit([this](auto& concrete) { handle(std::move(concrete)); }, event);
  run_inside();
  consider_candidacy();
  run_inside();
  consider_giving_up();
  run_inside();
  consult_arbiter();
  announce();
  if (finish_ && !coordinator_ && !finished_) {
    finished_ = true;
    if (past_.forgets()) act(node_action::Forget{});
    act(*finish_);
  }
  return std::exchange(actions_, {});
}

std::optional<Time> Node::next_deadline() const {
  if (finished_) return std::nullopt;
  std::optional<Time> next = member_.next_deadline();
  const auto consider = [&](const std::optional<Time>& time) {
    if (time && (!next || *time < *next)) next = time;
  };
  consider(leader_session_.next_deadline());
  consider(sessions_.next_deadline());
  if (coordinator_) {
    consider(coordinator_->next_deadline());
    if (!places_.empty()) consider(next_announcement_);
  } else if (may_stand()) {
    consider(succession_.next_attempt(candidate()));
    if (member_.state().current.has_arbiter() && member_.may_stand_at() > now_.steady) consider(member_.may_stand_at());
  }
  if (const auto again = arbitration_.next_deadline(); again && *again > now_.steady) consider(again);
  if (const auto time = may_give_up_at(); time && *time > now_.steady) consider(time);
  return next;
}

// ---- events ----

void Node::handle(const node_event::Begin&) {
  if (past_.remembers_round()) {
    act(member_action::Say{NodeNotice{.kind = NodeNotice::Kind::kLooking,
                                      .text = "an earlier start of this job here was cut off; looking for its other nodes"}});
  }
  if (settings_.leads_first) past_.met_somebody(now_.steady);
  if (settings_.leads_first && knows_no_round()) lead_unelected();
  inside_.emplace_back(ToMember{member_event::Tick{}});
}

void Node::handle(const node_event::LinkOpened& event) {
  if (!event.own_host.empty()) {
    settings_.member.own_host = event.own_host;
    member_.known_as(event.own_host);
  }
  if ((event.link & kAnnounce) != 0) {
    if (!announcements_.contains(event.link)) return;
    Hello hello = member_.hello(event.local_host);
    hello.coordinates = true;
    act(node_action::ToListener{event.link, std::move(hello)});
    return;
  }
  if (leader_session_.carried_by(event.link)) return act(node_action::ToListener{event.link, leader_session_.resume()});
  if ((event.link & kDialled) != 0) {
    past_.met_somebody(now_.steady);
    inside_.emplace_back(ToMember{member_event::Opened{event.link, event.local_host}});
    return;
  }
  sessions_.accept(event.link);
  if (coordinator_) inside_.emplace_back(ToCoordinator{coordinator_event::Opened{event.link}});
}

void Node::handle(const node_event::LinkClosed& event) {
  if (announcements_.erase(event.link) > 0) return;
  if (leader_session_.carried_by(event.link)) return leader_connection_lost(event);
  if ((event.link & kDialled) != 0) {
    leader_session_.forget(event.link);
    inside_.emplace_back(ToMember{member_event::Closed{event.link}});
    return;
  }
  const LinkId link = sessions_.link_behind(event.link);
  if (!event.may_return || !sessions_.lost(link, now_.steady)) lose(link);
}

void Node::handle(node_event::FromDialler&& event) {
  if (const auto* back = std::get_if<Resume>(&event.message)) return resume(event.link, *back);
  const LinkId link = sessions_.link_behind(event.link);
  const MemberSessions::Heard heard = sessions_.hear(link, event.message);
  if (!heard.is_for_coordinator) return;
  if (heard.confirmation) act(node_action::ToDialler{event.link, *heard.confirmation});
  if (coordinator_) {
    inside_.emplace_back(ToCoordinator{coordinator_event::Heard{link, std::move(event.message)}});
  } else if (const auto* hello = std::get_if<Hello>(&event.message)) {
    greet(link, *hello);
  } else if (const auto* vote = std::get_if<Vote>(&event.message)) {
    succession_.hear(link, *vote);
  }
}

void Node::handle(node_event::FromListener&& event) {
  if ((event.link & kAnnounce) != 0) return hear_announced(event.link, event.message);
  LinkId link = event.link;
  if (leader_session_.carried_by(link)) {
    if (const auto* answer = std::get_if<Resumed>(&event.message)) return leader_connection_back(*answer);
    link = leader_session_.link();
    if (!leader_session_.hear(event.message)) return;
    if (const auto received = leader_session_.confirmation()) act(node_action::ToListener{event.link, *received});
  } else if (member_.looking() && std::holds_alternative<Welcome>(event.message)) {
    leader_session_.begin(link);
  }
  inside_.emplace_back(ToMember{member_event::Heard{link, std::move(event.message)}});
}

void Node::handle(const node_event::StoreAnswered& event) {
  if (sessions_.knows(event.link)) to_member(event.link, event.answer);
}

void Node::handle(const node_event::Tick&) {
  check_sessions();
  if (coordinator_) inside_.emplace_back(ToCoordinator{coordinator_event::Tick{}});
  inside_.emplace_back(ToMember{member_event::Tick{}});
}

void Node::handle(const node_event::Farewell& event) {
  const Config& round = member_.state().current;
  if (coordinator_ || round.id != event.round || round.nodes != 2 || round.rank != 1) return;
  if (dead_ && dead_->origin == round.origin()) return;
  dead_ = DeadCoordinator{member_.record().coordinator.node, round.origin()};
  act(member_action::Say{NodeNotice{.kind = NodeNotice::Kind::kLooking,
                                    .text = "the other node's guardian says that the agent there is dead, and its workers are "
                                            "gone: this one may go on without"}});
  std::vector<MemberAction> actions;
  member_.leader_is_dead(actions);
  carry_out(std::move(actions));
}

void Node::handle(const node_event::ArbiterAnswered& event) {
  arbitration_.hear(event.ballot, event.answer, event.why, now_.steady);
  if (event.answer == BallotAnswer::kNone) return;
  const bool is_ours =
      std::find(arbitration_.won().begin(), arbitration_.won().end(), event.ballot.origin) != arbitration_.won().end();
  act(member_action::Say{NodeNotice{.kind = NodeNotice::Kind::kDecided,
                                    .text = is_ours ? "the arbiter chose this node: it goes on, also without the other one"
                                                    : "the arbiter chose the other node, which goes on"}});
  if (!is_ours) return;
  if (coordinator_) inside_.emplace_back(ToCoordinator{coordinator_event::ArbiterVotes{event.ballot.origin}});
  if (settings_.member.rules.arbiters_word_waits || coordinator_) return;
  std::vector<MemberAction> actions;
  member_.leader_is_dead(actions);
  carry_out(std::move(actions));
}

void Node::handle(const node_event::Local& event) {
  inside_.emplace_back(ToMember{event.event});
}

// ---- connections that come back: with the coordinator of this node's member ----

void Node::to_leader(LinkId link, FromMember message) {
  if (const auto* hello = std::get_if<Hello>(&message)) leader_session_.said_hello(link, hello->attempt);
  if (!leader_session_.is(link)) return act(node_action::ToListener{link, std::move(message)});
  if (leader_session_.say(message)) act(node_action::ToListener{leader_session_.carrier(), std::move(message)});
}

void Node::leader_connection_lost(const node_event::LinkClosed& event) {
  if (leader_session_.is_away()) {  // an attempt to resume the session failed
    if (!event.may_return || !leader_session_.failed(now_.steady)) lose_leader_session();
    return;
  }
  const auto dial = event.may_return ? leader_session_.lost(member_.lease(), now_.steady) : std::nullopt;
  if (!dial) return lose_leader_session();
  act(member_action::Dial{*dial, member_.leader_listens()});
}

void Node::leader_connection_back(const Resumed& answer) {
  const auto missing = leader_session_.resumed(answer);
  if (!missing) {
    act(node_action::CloseLink{leader_session_.carrier()});
    return lose_leader_session();
  }
  for (const FromMember& message : *missing) act(node_action::ToListener{leader_session_.carrier(), message});
}

void Node::lose_leader_session() {
  const LinkId link = leader_session_.link();
  leader_session_.end();
  inside_.emplace_back(ToMember{member_event::Closed{link}});
}

// ---- members whose connections come back: their sessions outlive the connection that they dialled ----

void Node::to_member(LinkId link, FromCoordinator message) {
  if (std::holds_alternative<Welcome>(message)) sessions_.begin(link);
  if (const auto carrier = sessions_.say(link, message)) act(node_action::ToDialler{*carrier, std::move(message)});
}

void Node::resume(LinkId connection, const Resume& message) {
  if (!sessions_.knows(connection)) return;
  if (coordinator_) inside_.emplace_back(ToCoordinator{coordinator_event::Closed{connection}});  // no longer a stranger
  auto back = coordinator_ ? sessions_.resume(connection, message) : std::nullopt;
  if (!back) return drop(connection);
  if (back->replaced != 0) act(node_action::CloseLink{back->replaced});
  act(node_action::ToDialler{connection, back->answer});
  for (FromCoordinator& missed : back->missing) act(node_action::ToDialler{connection, std::move(missed)});
}

void Node::lose(LinkId link) {
  succession_.remove(link);
  sessions_.end(link);
  if (coordinator_) inside_.emplace_back(ToCoordinator{coordinator_event::Closed{link}});
}

void Node::check_sessions() {
  while (const auto link = sessions_.take_over(now_.steady)) lose(*link);
  if (leader_session_.is_over(now_.steady)) {
    if (leader_session_.carrier() != 0) act(node_action::CloseLink{leader_session_.carrier()});
    lose_leader_session();
  } else if (const auto dial = leader_session_.due(now_.steady)) {
    act(member_action::Dial{*dial, member_.leader_listens()});
  }
}

// ---- the machines inside ----

void Node::run_inside() {
  while (!inside_.empty()) {
    Inside next = std::move(inside_.front());
    inside_.pop_front();
    if (auto* to_member = std::get_if<ToMember>(&next)) {
      const bool looked = member_.looking();
      carry_out(member_.on(to_member->event, now_));
      if (looked && member_.following() && !coordinator_) redirect_electors();
    } else if (coordinator_) {
      carry_out(coordinator_->on(std::get<ToCoordinator>(next).event, now_));
    }
  }
}

void Node::carry_out(std::vector<MemberAction> actions) {
  for (MemberAction& action : actions) {
    std::visit(
        [this](auto& concrete) {
          using Action = std::decay_t<decltype(concrete)>;
          if constexpr (std::is_same_v<Action, member_action::Send>) {
            if (concrete.link == kSelfLink) {
              inside_.emplace_back(ToCoordinator{coordinator_event::Heard{kSelfLink, std::move(concrete.message)}});
            } else {
              to_leader(concrete.link, std::move(concrete.message));
            }
          } else if constexpr (std::is_same_v<Action, member_action::Close>) {
            if (concrete.link == kSelfLink) {
              inside_.emplace_back(ToCoordinator{coordinator_event::Closed{kSelfLink}});
              if (coordinator_ && member_.looking()) {  // without a grant for a while, it sends Hello again as other nodes do
                inside_.emplace_back(ToCoordinator{coordinator_event::Opened{kSelfLink}});
                inside_.emplace_back(ToMember{member_event::Opened{kSelfLink}});
              }
            } else if (leader_session_.is(concrete.link)) {
              act(node_action::CloseLink{leader_session_.carrier()});
              leader_session_.end();
            } else {
              act(node_action::CloseLink{concrete.link});
            }
          } else if constexpr (std::is_same_v<Action, member_action::JobOver>) {
            if (auto left = past_.end(concrete, member_.record(), coordinator_.has_value())) {
              act(member_action::Remember{*std::move(left), settings_.member.id});
            }
            if (concrete.exit_code == static_cast<int>(ExitCode::kMinority)) concrete.why += arbitration_.why_not();
            finish_ = node_action::Finish{concrete.exit_code, std::move(concrete.why)};
          } else {
            act(std::move(concrete));
          }
        },
        action);
  }
}

void Node::carry_out(std::vector<CoordinatorAction> actions) {
  actions_.reserve(actions_.size() + actions.size());
  for (CoordinatorAction& action : actions) {
    std::visit(
        [this](auto& concrete) {
          using Action = std::decay_t<decltype(concrete)>;
          if constexpr (std::is_same_v<Action, coordinator_action::Send>) {
            if (concrete.link == kSelfLink) {
              inside_.emplace_back(ToMember{member_event::Heard{kSelfLink, std::move(concrete.message)}});
            } else {
              to_member(concrete.link, std::move(concrete.message));
            }
          } else if constexpr (std::is_same_v<Action, coordinator_action::Close>) {
            if (concrete.link == kSelfLink) {
              inside_.emplace_back(ToMember{member_event::Closed{kSelfLink}});
            } else {
              drop(concrete.link);
            }
          } else if constexpr (std::is_same_v<Action, coordinator_action::ServeStore>) {
            act(node_action::ServeStore{concrete.link, std::move(concrete.ask)});
          } else if constexpr (std::is_same_v<Action, coordinator_action::Say>) {
            act(member_action::Say{std::move(concrete.notice)});
          } else if constexpr (std::is_same_v<Action, coordinator_action::StepDown>) {
            if (concrete.term > 0 || concrete.leader.port != 0) note_job_elsewhere();
            step_down(concrete.why);
            unfit_ = concrete.unfit;
            succession_.note_term(concrete.term);
            member_.also_try(concrete.leader);
          } else if constexpr (std::is_same_v<Action, coordinator_action::KeepRoster>) {
            std::vector<MemberAction> kept;
            member_.keep_roster(std::move(concrete.roster), kept);
            carry_out(std::move(kept));
          } else if constexpr (std::is_same_v<Action, coordinator_action::Entrust>) {
            act(std::move(concrete));
          } else {
            static_assert(std::is_same_v<Action, coordinator_action::Finished>);
            step_down("the job is over");
          }
        },
        action);
  }
}

// ---- without a coordinator here ----

void Node::greet(LinkId link, const Hello& hello) {
  const auto refuse = [&](Refusal reason, const std::string& text) {
    act(node_action::ToDialler{link, Refused{.reason = reason, .text = text}});
    drop(link);
  };
  if (hello.protocol != kProtocolVersion) {
    return refuse(Refusal::kVersion, "this agent speaks version " + std::to_string(hello.protocol) +
                                         " of the rendezvous, the other one version " + std::to_string(kProtocolVersion));
  }
  if (hello.run != settings_.member.run) return refuse(Refusal::kRun, "the job at this address has another run id");
  if (!makes_sense(hello.state)) return refuse(Refusal::kBadHello, "what it says of its last round makes no sense");
  if (hello.node == settings_.member.id) return drop(link);  // this node's own address under another name
  if (member_.over()) {
    drop(link);
  } else if (member_.following()) {
    redirect(link);
  } else if (hello.coordinates) {
    const std::uint64_t promised = member_.state().promised_term;
    if (hello.state.promised_term < promised) {  // it can only follow this node after another election, with a later term
      act(node_action::ToDialler{link, Redirect{.term = promised, .coordinator = {}}});
    } else {
      member_.also_try(hello.listens);
      inside_.emplace_back(ToMember{member_event::Tick{}});
      for (const auto& [other, elector] : succession_.electors()) {
        act(node_action::ToDialler{other, Redirect{.term = hello.state.promised_term, .coordinator = hello.listens}});
      }
    }
    drop(link);
  } else {
    member_.learn_end(hello.ending);
    succession_.add(link, hello);
    if (may_lead_again()) return lead_unelected();
    if (succession_.election()) act(node_action::ToDialler{link, succession_.request_for(candidate())});
  }
}

void Node::redirect(LinkId link) {
  act(node_action::ToDialler{link, Redirect{.term = member_.leader_term(), .coordinator = member_.leader_address()}});
  drop(link);
}

void Node::redirect_electors() {
  while (!succession_.electors().empty()) redirect(succession_.electors().begin()->first);
  succession_.clear();
}

Succession::Candidate Node::candidate() const {
  return {.id = settings_.member.id,
          .state = member_.state(),
          .place_in_line = member_.place_in_line(),
          .may_stand_at = member_.may_stand_at(),
          .lease = settings_.coordinator.lease,
          .roster = &member_.roster()};
}

void Node::consider_candidacy() {
  if (!may_stand()) return;
  unfit_ = false;
  count_the_dead();
  count_the_arbiter();
  if (succession_.attempt(candidate(), now_)) {
    std::vector<MemberAction> actions;
    if (!member_.promise(succession_.election()->term, now_, actions)) return;
    carry_out(std::move(actions));
    const std::uint64_t term = succession_.election()->term;
    for (const auto& [link, elector] : succession_.electors()) {
      if (is_connection(link)) act(node_action::ToDialler{link, succession_.request_for(candidate())});
    }
    for (const LinkId link : {kOfTheDead, kOfTheArbiter}) succession_.hear(link, Vote{.term = term, .promised_term = term});
  }
  if (const auto won = succession_.won(candidate())) {
    Authority authority{.term = won->promised_term, .elected = true, .known = *won, .roster = member_.roster()};
    authority.judged = succession_.has_judged(candidate(), *won);
    if (const auto dead = succession_.electors().find(kOfTheDead); dead != succession_.electors().end()) {
      const PersistentState& state = dead->second.hello.state;
      authority.departed = {dead->second.hello.node, state.current.rank, state.previous.rank};
    }
    lead(authority);
  }
}

// Of two nodes, the one without group rank 0 is no majority alone. If the other node is dead permanently, its vote passes to
// this node. The same holds for a coordinator that has left and handed over to this node.
void Node::count_the_dead() {
  const HandOver* const left = member_.handed_over();
  std::optional<Hello> dead;
  if (left != nullptr && makes_sense(left->state)) {
    dead = hello_of_who_left(*left, member_.record());
  } else if (dead_) {
    dead = hello_of_the_dead(*dead_, member_.record());
  }
  const auto counted = succession_.electors().find(kOfTheDead);
  const bool is_counted = counted != succession_.electors().end();
  const auto same_rounds = [](const PersistentState& a, const PersistentState& b) {
    return a.current == b.current && a.previous == b.previous;
  };
  if (is_counted && dead && same_rounds(counted->second.hello.state, dead->state)) return;  // its vote is already counted
  if (is_counted) succession_.remove(kOfTheDead);
  if (dead) succession_.add(kOfTheDead, *dead);
}

// In the rounds that this node has won, it has the arbiter's vote.
void Node::count_the_arbiter() {
  const auto arbiter = arbitration_.elector(member_.record());
  const auto counted = succession_.electors().find(kOfTheArbiter);
  const bool is_counted = counted != succession_.electors().end();
  if (is_counted && arbiter && counted->second.hello.state == arbiter->state) return;
  if (is_counted) succession_.remove(kOfTheArbiter);
  if (arbiter) succession_.add(kOfTheArbiter, *arbiter);
}

// Rounds in which this node has no majority alone, while no other node of the round is connected.
std::vector<Config> Node::alone_in() const {
  if (coordinator_) return coordinator_->alone_in();
  const bool waits = settings_.member.rules.arbiters_word_waits && member_.may_stand_at() > now_.steady;
  if (!may_stand() || waits || succession_.next_attempt(candidate())) return {};
  std::vector<Config> rounds;
  for (const Config& round : {member_.state().current, member_.state().previous}) {
    if (round.has_arbiter() && round.rank >= 0) rounds.push_back(round);
  }
  return rounds;
}

void Node::consult_arbiter() {
  if (finish_) return;
  const auto ballot = arbitration_.ask(alone_in(), settings_.coordinator.lease, now_.steady);
  if (ballot) act(node_action::AskArbiter{*ballot, settings_.member.id});
}

// ---- what it remembers ----

std::optional<Time> Node::may_give_up_at() const {
  if (!looks_for_old_job() || member_.has_workers() || member_.over()) return std::nullopt;
  return past_.may_give_up_at(now_.steady, settings_.coordinator.lease);
}

// Under a new identity, nodes that remember the old identity could not elect this one. So a node that should lead waits until
// enough nodes are connected that remember no round.
bool Node::enough_know_nothing() {
  std::set<NodeId> here{settings_.member.id};
  for (const auto& [link, elector] : succession_.electors()) {
    if (!elector.hello.state.current.exists()) here.insert(elector.hello.node);
  }
  const std::int32_t needed =
      std::max(settings_.coordinator.min_nodes, past_.first_round(member_.record(), settings_.coordinator, now_.steady).nodes);
  if (std::ssize(here) >= needed || settings_.alone) return true;
  if (!std::exchange(said_stuck_, true)) {
    act(member_action::Say{past_.waits_for(member_.record(), std::ssize(here), needed)});
  }
  return false;
}

void Node::consider_giving_up() {
  const std::uint64_t promised = member_.state().promised_term;
  if (std::exchange(promised_, promised) < promised) past_.voted(now_.steady);
  const auto due = may_give_up_at();
  if (!due || *due > now_.steady) return;
  if (settings_.leads_first && !enough_know_nothing()) return;
  std::vector<MemberAction> closed;
  member_.abandon(closed);
  carry_out(std::move(closed));
  settings_.member.id = settings_.coordinator.self = unknown_id_;
  leader_session_.become(unknown_id_);
  settings_.member.first_link = LinkId{1} << 32;
  member_ = Member(settings_.member, past_.give_up(member_.record()), now_);
  arbitration_ = Arbitration(settings_.member.rules, Config{});
  act(member_action::Remember{member_.record(), settings_.member.id});
  if (settings_.leads_first) return lead_unelected();
  inside_.emplace_back(ToMember{member_event::Tick{}});
}

// ---- leading ----

// Nodes that were away during the election don't know this node's address. They look at the addresses where nodes met before.
// So the coordinator dials those addresses.
void Node::announce() {
  if (!coordinator_ || places_.empty() || next_announcement_ > now_.steady) return;
  next_announcement_ = now_.steady + settings_.coordinator.lease;
  for (const LinkId link : std::exchange(announcements_, {})) act(node_action::CloseLink{link});
  for (const Address& place : places_) {
    if (coordinator_->knows(place)) continue;
    const LinkId link = kDialled | kAnnounce | next_announcement_link_++;
    announcements_.insert(link);
    act(member_action::Dial{link, place});
  }
}

void Node::hear_announced(LinkId link, const FromCoordinator& message) {
  if (announcements_.erase(link) == 0) return;
  act(node_action::CloseLink{link});
  const auto* redirect = std::get_if<Redirect>(&message);
  if (!coordinator_ || redirect == nullptr || redirect->term <= coordinator_->term()) return;
  if (coordinator_->is_stopping()) return;  // it is too late to gain nodes for the job with a later term
  step_down("a later term is known elsewhere");
  succession_.note_term(redirect->term);
  member_.also_try(redirect->coordinator);
}

// A job's first coordinator needs no votes: it steps down for any node that knows a round.
void Node::lead_unelected() {
  const FirstRound first = past_.first_round(member_.record(), settings_.coordinator, now_.steady);
  const std::uint64_t term = past_.first_term(member_.record(), settings_.member.incarnation);
  std::vector<MemberAction> actions;
  if (!member_.promise(term, now_, actions)) return;
  carry_out(std::move(actions));
  lead(Authority{.term = term, .elected = false, .first = first, .known = member_.state()});
}

// This node stepped down for a node that remembered an earlier job. If enough nodes of that job were running, one of them would
// lead by now. And the connected nodes have given the old job up.
bool Node::may_lead_again() const {
  if (!settings_.leads_first || !stepped_down_ || now_.steady < *stepped_down_ + kLookForOldJob || !knows_no_round())
    return false;
  return !succession_.somebody_knows_a_round();
}

void Node::lead(const Authority& authority) {
  places_.clear();
  auto places = settings_.member.rules.coordinators_announce ? member_.known_places() : std::vector<Address>();
  if (settings_.member.rules.coordinators_announce) places.insert(places.end(), past_.places().begin(), past_.places().end());
  for (const Address& place : places) {
    const bool known = std::find(places_.begin(), places_.end(), place) != places_.end();
    if (place.port != 0 && place != settings_.member.listens && !known) places_.push_back(place);
  }
  next_announcement_ = now_.steady + settings_.coordinator.lease / 5;
  coordinator_.emplace(settings_.coordinator, authority, now_);
  act(member_action::Say{NodeNotice{.kind = NodeNotice::Kind::kLeading, .text = "term " + std::to_string(authority.term)}});
  const auto electors = succession_.electors();
  succession_.clear();
  inside_.emplace_back(ToCoordinator{coordinator_event::Opened{kSelfLink}});
  for (const RoundId& origin : arbitration_.won()) inside_.emplace_back(ToCoordinator{coordinator_event::ArbiterVotes{origin}});
  for (const LinkId link : sessions_.links()) inside_.emplace_back(ToCoordinator{coordinator_event::Opened{link}});
  inside_.emplace_back(ToMember{member_event::Opened{kSelfLink}});
  run_inside();
  for (const auto& [link, elector] : electors) {
    if (!is_connection(link)) continue;
    inside_.emplace_back(ToCoordinator{coordinator_event::Heard{link, elector.hello}});
  }
}

void Node::step_down(const std::string& why) {
  coordinator_.reset();
  if (settings_.member.rules.who_steps_down_revokes) act(coordinator_action::Entrust{});
  stepped_down_ = now_.steady;
  for (const LinkId link : std::exchange(announcements_, {})) act(node_action::CloseLink{link});
  std::erase_if(inside_, [](const Inside& item) { return std::holds_alternative<ToCoordinator>(item); });
  act(member_action::Say{NodeNotice{.kind = NodeNotice::Kind::kLooking, .text = why}});
  for (const LinkId link : sessions_.links()) drop(link);
  inside_.emplace_back(ToMember{member_event::Closed{kSelfLink}});
}

void Node::drop(LinkId link) {
  succession_.remove(link);
  act(node_action::CloseLink{sessions_.carrier_of(link)});
  sessions_.end(link);
}

}  // namespace ddprun::rendezvous
