// Implementation of node.hpp. The first half forwards events and messages between the links and the state machines of the node.
// The second half decides whether this node leads. If there is no coordinator, the node collects voters and becomes a
// candidate, or gives up the job of an earlier process.
//
// Note [Why this file is long] The node is one state machine and cannot be split. Any event may change which node leads, and
// the routes of all messages depend on the leader. Classes with separate state are in other files: the previous job, the
// election, the voters that have no connection, the announcements, and the sessions of members and coordinators.
#include "rendezvous/node/node.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/exit_code.hpp"
#include "common/base/overloaded.hpp"
#include "rendezvous/coordinator/entry.hpp"

namespace ddprun::rendezvous {
namespace {

// Completes the settings. If this process continues the job of an earlier process, it uses the node id of that process.
NodeSettings complete(NodeSettings settings, const PreviousJob& previous_job) {
  if (previous_job.self()) settings.member.node = previous_job.self()->id;
  settings.coordinator.self = settings.member.node;
  settings.coordinator.run = settings.member.run;
  settings.coordinator.arbiter = settings.member.arbiter;
  settings.coordinator.command = settings.member.command;
  return settings;
}

}  // namespace

Node::Node(NodeSettings settings, RestoredState restored, Now now)
    : unknown_id_(settings.member.node),
      previous_job_(std::move(restored), settings.alone, settings.member.rules),
      settings_(complete(std::move(settings), previous_job_)),
      now_(now),
      member_(settings_.member, previous_job_.record(), now),
      leader_election_(settings_.member.rules),
      arbitration_(settings_.member.rules, member_.state().current),
      leader_session_(settings_.member.rules, settings_.member.node, settings_.member.incarnation),
      sessions_(settings_.member.rules, settings_.coordinator.lease),
      promised_(member_.state().promised_term) {}

std::vector<NodeAction> Node::on(NodeEvent event, Now now) {
  now_ = now;
  if (finished_) return {};
  std::visit([this](auto& concrete) { handle(std::move(concrete)); }, event);
  run_internal();
  campaign_if_due();
  run_internal();
  give_up_if_due();
  run_internal();
  query_arbiter_if_alone();
  if (coordinator_) announcements_.dial_due(*coordinator_, now_.steady, actions_);
  if (finish_ && !coordinator_ && !finished_) {
    finished_ = true;
    if (previous_job_.forgets()) act(node_action::Forget{});
    act(*finish_);
  }
  return std::exchange(actions_, {});
}

std::optional<Time> Node::next_deadline() const {
  if (finished_) return std::nullopt;
  std::optional<Time> next = member_.next_deadline();
  keep_earlier(next, leader_session_.next_deadline());
  keep_earlier(next, sessions_.next_deadline());
  if (coordinator_) {
    keep_earlier(next, coordinator_->next_deadline());
    keep_earlier(next, announcements_.next_deadline());
  } else if (may_campaign()) {
    keep_earlier(next, leader_election_.next_attempt(candidate()));
    if (member_.state().current.has_arbiter()) keep_earlier(next, if_after(member_.may_campaign_at(), now_.steady));
  }
  keep_earlier(next, if_after(arbitration_.next_deadline(), now_.steady));
  keep_earlier(next, if_after(may_give_up_at(), now_.steady));
  return next;
}

// ---- events ----

void Node::handle(const node_event::Begin&) {
  if (previous_job_.remembers_round()) {
    notify(NodeNotice::Kind::kSearching,
           "an earlier start of this job on this node was interrupted; looking for its other nodes");
  }
  if (settings_.leads_first) previous_job_.met_node(now_.steady);
  if (settings_.leads_first && knows_no_round()) lead_unelected();
  for_member(node_event::Tick{});
}

void Node::handle(const node_event::LinkOpened& event) {
  if (!event.own_host.empty()) {
    settings_.member.own_host = event.own_host;
    member_.set_own_host(event.own_host);
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
    previous_job_.met_node(now_.steady);
    for_member(event);
    return;
  }
  sessions_.accept(event.link);
  for_coordinator(node_event::LinkOpened{event.link});
}

void Node::handle(const node_event::LinkClosed& event) {
  if (announcements_.remove(event.link)) return;
  if (leader_session_.carried_by(event.link)) return leader_connection_lost(event);
  if ((event.link & kDialled) != 0) {
    leader_session_.forget(event.link);
    for_member(event);
    return;
  }
  const LinkId link = sessions_.session_link(event.link);
  if (!event.may_return || !sessions_.lost(link, now_.steady)) lose(link);
}

void Node::handle(node_event::FromDialler&& event) {
  if (const auto* back = std::get_if<Resume>(&event.message)) return resume(event.link, *back);
  const LinkId link = sessions_.session_link(event.link);
  const MemberSessions::Incoming incoming = sessions_.receive(link, event.message);
  if (!incoming.is_for_coordinator) return;
  if (incoming.confirmation) act(node_action::ToDialler{event.link, *incoming.confirmation});
  if (coordinator_) {
    for_coordinator(node_event::FromDialler{link, std::move(event.message)});
  } else if (const auto* hello = std::get_if<Hello>(&event.message)) {
    answer_hello(link, *hello);
  } else if (const auto* vote = std::get_if<Vote>(&event.message)) {
    leader_election_.receive(link, *vote);
  }
}

void Node::handle(node_event::FromListener&& event) {
  if ((event.link & kAnnounce) != 0) return handle_announce_reply(event.link, event.message);
  LinkId link = event.link;
  if (leader_session_.carried_by(link)) {
    if (const auto* answer = std::get_if<Resumed>(&event.message)) return leader_connection_back(*answer);
    link = leader_session_.link();
    if (!leader_session_.receive(event.message)) return;
    if (const auto received = leader_session_.confirmation()) act(node_action::ToListener{event.link, *received});
  } else if (member_.searching() && std::holds_alternative<Welcome>(event.message)) {
    leader_session_.begin(link);
  }
  for_member(node_event::FromListener{link, std::move(event.message)});
}

void Node::handle(const node_event::StoreAnswered& event) {
  if (sessions_.knows(event.link)) to_member(event.link, event.answer);
}

void Node::handle(const node_event::Tick&) {
  check_sessions();
  for_coordinator(node_event::Tick{});
  for_member(node_event::Tick{});
}

void Node::handle(const node_event::DeathNoticeReceived& event) {
  const Config& round = member_.state().current;
  if (coordinator_ || round.id != event.round || round.nodes != 2 || round.rank != 1) return;
  if (!departed_voters_.note_dead({member_.record().coordinator.node, round.origin()})) return;
  notify(NodeNotice::Kind::kSearching,
         "the other node reports that its agent has died and its workers have ended: this node may continue alone");
  leader_is_dead();
}

void Node::handle(const node_event::ArbiterAnswered& event) {
  arbitration_.receive(event.ballot, event.answer, event.why, now_.steady);
  if (event.answer == BallotAnswer::kNone) return;
  const bool is_ours =
      std::find(arbitration_.won().begin(), arbitration_.won().end(), event.ballot.origin) != arbitration_.won().end();
  notify(NodeNotice::Kind::kDecided, is_ours
                                         ? "the arbiter chose this node, so this node continues, even without the other node"
                                         : "the arbiter chose the other node, which continues");
  if (!is_ours) return;
  for_coordinator(coordinator_event::ArbiterVotes{event.ballot.origin});
  if (settings_.member.rules.arbiter_winner_waits || coordinator_) return;
  leader_is_dead();
}

// ---- as a member: this node's session with its coordinator ----

void Node::to_leader(LinkId link, FromMember message) {
  if (const auto* hello = std::get_if<Hello>(&message)) leader_session_.sent_hello(link, hello->attempt);
  if (!leader_session_.is(link)) return act(node_action::ToListener{link, std::move(message)});
  if (leader_session_.send(message)) act(node_action::ToListener{leader_session_.carrier(), std::move(message)});
}

void Node::leader_connection_lost(const node_event::LinkClosed& event) {
  if (leader_session_.is_away()) {  // The lost connection was only an attempt to resume the session.
    if (!event.may_return || !leader_session_.failed(now_.steady)) lose_leader_session();
    return;
  }
  const auto dial = event.may_return ? leader_session_.lost(member_.lease(), now_.steady) : std::nullopt;
  if (!dial) return lose_leader_session();
  act(node_action::Dial{*dial, member_.leader_listens()});
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
  for_member(node_event::LinkClosed{link});
}

// ---- as a coordinator: the sessions with its members ----

void Node::to_member(LinkId link, FromCoordinator message) {
  if (std::holds_alternative<Welcome>(message)) sessions_.begin(link);
  if (const auto carrier = sessions_.send(link, message)) act(node_action::ToDialler{*carrier, std::move(message)});
}

void Node::resume(LinkId connection, const Resume& message) {
  if (!sessions_.knows(connection)) return;
  for_coordinator(node_event::LinkClosed{connection});  // The coordinator must no longer wait for a Hello over this connection.
  auto back = coordinator_ ? sessions_.resume(connection, message) : std::nullopt;
  if (!back) return drop(connection);
  if (back->replaced != 0) act(node_action::CloseLink{back->replaced});
  act(node_action::ToDialler{connection, back->answer});
  for (FromCoordinator& missed : back->missing) act(node_action::ToDialler{connection, std::move(missed)});
}

void Node::lose(LinkId link) {
  leader_election_.remove(link);
  sessions_.end(link);
  for_coordinator(node_event::LinkClosed{link});
}

void Node::check_sessions() {
  while (const auto link = sessions_.take_expired(now_.steady)) lose(*link);
  if (leader_session_.is_over(now_.steady)) {
    if (leader_session_.carrier() != 0) act(node_action::CloseLink{leader_session_.carrier()});
    lose_leader_session();
  } else if (const auto dial = leader_session_.due(now_.steady)) {
    act(node_action::Dial{*dial, member_.leader_listens()});
  }
}

// ---- the state machines inside this node ----

void Node::run_internal() {
  while (!internal_.empty()) {
    const auto next = std::move(internal_.front());
    internal_.pop_front();
    if (const auto* event = std::get_if<MemberEvent>(&next)) {
      const bool was_searching = member_.searching();
      carry_out(member_.on(*event, now_));
      if (was_searching && member_.following() && !coordinator_) redirect_voters();
    } else if (coordinator_) {
      carry_out(coordinator_->on(std::get<CoordinatorEvent>(next), now_));
    }
  }
}

void Node::carry_out(std::vector<MemberAction> actions) {
  const Overloaded carry_out_one{[this](node_action::ToListener& send) {
                                   if (send.link == kSelfLink)
                                     return for_coordinator(node_event::FromDialler{kSelfLink, std::move(send.message)});
                                   to_leader(send.link, std::move(send.message));
                                 },
                                 [this](node_action::CloseLink& close) {
                                   if (close.link == kSelfLink) {
                                     for_coordinator(node_event::LinkClosed{kSelfLink});
                                     if (!coordinator_ || !member_.searching()) return;
                                     // The member on the coordinator's own node received no grant in time and closed its link.
                                     // So it sends another Hello, like any other node.
                                     for_coordinator(node_event::LinkOpened{kSelfLink});
                                     for_member(node_event::LinkOpened{kSelfLink});
                                   } else if (leader_session_.is(close.link)) {
                                     act(node_action::CloseLink{leader_session_.carrier()});
                                     leader_session_.end();
                                   } else {
                                     act(close);
                                   }
                                 },
                                 [this](node_action::Finish& end) {
                                   if (auto left = previous_job_.end(end, member_.record(), coordinator_.has_value())) {
                                     act(member_action::Remember{*std::move(left), settings_.member.node});
                                   }
                                   if (end.exit_code == static_cast<int>(ExitCode::kMinority))
                                     end.why += arbitration_.why_not();
                                   finish_ = std::move(end);
                                 },
                                 [this](auto& other) { act(std::move(other)); }};
  for (MemberAction& action : actions) std::visit(carry_out_one, action);
}

void Node::carry_out(std::vector<CoordinatorAction> actions) {
  actions_.reserve(actions_.size() + actions.size());
  const Overloaded carry_out_one{[this](node_action::ToDialler& send) {
                                   if (send.link == kSelfLink)
                                     return for_member(node_event::FromListener{kSelfLink, std::move(send.message)});
                                   to_member(send.link, std::move(send.message));
                                 },
                                 [this](node_action::CloseLink& close) {
                                   if (close.link == kSelfLink) return for_member(node_event::LinkClosed{kSelfLink});
                                   drop(close.link);
                                 },
                                 [this](coordinator_action::StepDown& down) {
                                   if (down.term > 0 || down.leader.port != 0) note_job_elsewhere();
                                   step_down(down.why);
                                   unfit_ = down.unfit;
                                   leader_election_.note_term(down.term);
                                   member_.add_hint(down.leader);
                                 },
                                 [this](coordinator_action::KeepRoster& keep) {
                                   member_.keep_roster(std::move(keep.roster));
                                   carry_out(member_.take());
                                 },
                                 [this](auto& other) { act(std::move(other)); }};
  for (CoordinatorAction& action : actions) std::visit(carry_out_one, action);
}

// ---- while this node does not lead ----

void Node::answer_hello(LinkId link, const Hello& hello) {
  std::optional<Refused> refused = refusal_of_foreign(hello, settings_.member.run);
  if (!refused && !is_plausible(hello.state))
    refused = Refused{.reason = Refusal::kBadHello, .text = "its state of the last round is invalid"};
  if (refused) {
    act(node_action::ToDialler{link, *std::move(refused)});
    return drop(link);
  }
  // This node has dialed itself, at an address that it did not recognize as its own.
  if (hello.node == settings_.member.node) return drop(link);
  if (member_.over()) {
    drop(link);
  } else if (member_.following()) {
    redirect(link);
  } else if (hello.coordinates) {
    const std::uint64_t promised = member_.state().promised_term;
    // This node has promised a later term than the term of the sender, so it can follow the sender only after another
    // election.
    if (hello.state.promised_term < promised) {
      act(node_action::ToDialler{link, Redirect{.term = promised, .coordinator = {}}});
    } else {
      member_.add_hint(hello.listens);
      for_member(node_event::Tick{});
      for (const auto& [other, voter] : leader_election_.known_voters()) {
        act(node_action::ToDialler{other, Redirect{.term = hello.state.promised_term, .coordinator = hello.listens}});
      }
    }
    drop(link);
  } else {
    member_.learn_end(hello.ending);
    leader_election_.add(link, hello);
    if (may_lead_again()) return lead_unelected();
    if (leader_election_.election()) act(node_action::ToDialler{link, leader_election_.request_for(candidate())});
  }
}

void Node::redirect(LinkId link) {
  act(node_action::ToDialler{link, Redirect{.term = member_.leader_term(), .coordinator = member_.leader_address()}});
  drop(link);
}

void Node::redirect_voters() {
  while (!leader_election_.known_voters().empty()) redirect(leader_election_.known_voters().begin()->first);
  leader_election_.clear();
}

LeaderElection::Candidate Node::candidate() const {
  return {.id = settings_.member.node,
          .state = member_.state(),
          .candidate_rank = member_.candidate_rank(),
          .may_campaign_at = member_.may_campaign_at(),
          .lease = settings_.coordinator.lease,
          .roster = &member_.roster()};
}

void Node::campaign_if_due() {
  if (!may_campaign()) return;
  unfit_ = false;
  departed_voters_.update(leader_election_, member_, arbitration_);
  if (leader_election_.attempt(candidate(), now_)) {
    if (!member_.promise(leader_election_.election()->term, now_)) return;
    carry_out(member_.take());
    for (const auto& [link, voter] : leader_election_.known_voters()) {
      if (is_connection(link)) act(node_action::ToDialler{link, leader_election_.request_for(candidate())});
    }
    DepartedVoters::vote(leader_election_);
  }
  if (const auto won = leader_election_.won(candidate())) {
    Authority authority{.term = won->promised_term, .elected = true, .known = *won, .roster = member_.roster()};
    authority.judged = leader_election_.has_judged(candidate(), *won);
    authority.departed = DepartedVoters::departed(leader_election_);
    lead(authority);
  }
}

// Returns the two-node rounds in which the other node does not answer and this node needs the arbiter's vote.
std::vector<Config> Node::alone_in() const {
  if (coordinator_) return coordinator_->alone_in();
  const bool waits = settings_.member.rules.arbiter_winner_waits && member_.may_campaign_at() > now_.steady;
  if (!may_campaign() || waits || leader_election_.next_attempt(candidate())) return {};
  std::vector<Config> rounds;
  for (const Config& round : {member_.state().current, member_.state().previous}) {
    if (round.has_arbiter() && round.rank >= 0) rounds.push_back(round);
  }
  return rounds;
}

void Node::query_arbiter_if_alone() {
  if (finish_) return;
  const auto ballot = arbitration_.query(alone_in(), settings_.coordinator.lease, now_.steady);
  if (ballot) act(node_action::QueryArbiter{*ballot, settings_.member.node});
}

// ---- the end of the search for an earlier job ----

std::optional<Time> Node::may_give_up_at() const {
  if (!searches_for_old_job() || member_.has_workers() || member_.over()) return std::nullopt;
  return previous_job_.may_give_up_at(now_.steady, settings_.coordinator.lease);
}

// Returns true if this node may start a new job under a new node id. After that, the nodes of the old job cannot elect this
// node. So enough other nodes must be connected that have never recorded a round.
bool Node::enough_fresh_nodes() {
  std::set<NodeId> connected{settings_.member.node};
  for (const auto& [link, voter] : leader_election_.known_voters()) {
    if (!voter.hello.state.current.exists()) connected.insert(voter.hello.node);
  }
  const std::int32_t needed = std::max(settings_.coordinator.min_nodes,
                                       previous_job_.first_round(member_.record(), settings_.coordinator, now_.steady).nodes);
  if (std::ssize(connected) >= needed || settings_.alone) return true;
  if (!std::exchange(stuck_reported_, true)) {
    act(previous_job_.waits_for(member_.record(), std::ssize(connected), needed));
  }
  return false;
}

void Node::give_up_if_due() {
  const std::uint64_t promised = member_.state().promised_term;
  if (std::exchange(promised_, promised) < promised) previous_job_.voted(now_.steady);
  const auto due = may_give_up_at();
  if (!due || *due > now_.steady) return;
  if (settings_.leads_first && !enough_fresh_nodes()) return;
  member_.abandon();
  carry_out(member_.take());
  settings_.member.node = settings_.coordinator.self = unknown_id_;
  leader_session_.become(unknown_id_);
  settings_.member.first_link = LinkId{1} << 32;
  member_ = Member(settings_.member, previous_job_.give_up(member_.record()), now_);
  arbitration_ = Arbitration(settings_.member.rules, Config{});
  act(member_action::Remember{member_.record(), settings_.member.node});
  if (settings_.leads_first) return lead_unelected();
  for_member(node_event::Tick{});
}

// ---- leading ----

void Node::handle_announce_reply(LinkId link, const FromCoordinator& message) {
  if (!announcements_.remove(link)) return;
  act(node_action::CloseLink{link});
  const auto* redirect = std::get_if<Redirect>(&message);
  if (!coordinator_ || redirect == nullptr || redirect->term <= coordinator_->term()) return;
  if (coordinator_->is_stopping()) return;  // The job is stopping, so another coordinator would not help.
  step_down("another node reports a later term");
  leader_election_.note_term(redirect->term);
  member_.add_hint(redirect->coordinator);
}

// Makes this node the first coordinator of a job, without votes. It steps down if another node reports a round of this job.
void Node::lead_unelected() {
  const FirstRound first = previous_job_.first_round(member_.record(), settings_.coordinator, now_.steady);
  const std::uint64_t term = previous_job_.first_term(member_.record(), settings_.member.incarnation);
  if (!member_.promise(term, now_)) return;
  carry_out(member_.take());
  lead(Authority{.term = term, .elected = false, .first = first, .known = member_.state()});
}

// Returns true if this node, which stepped down for a node of an earlier job, may lead again. Enough time must have passed for
// a majority of the old job to elect a coordinator. In addition, no connected node may have a recorded round.
bool Node::may_lead_again() const {
  if (!settings_.leads_first || !stepped_down_ || now_.steady < *stepped_down_ + kOldJobSearch || !knows_no_round())
    return false;
  return !leader_election_.any_knows_round();
}

void Node::lead(const Authority& authority) {
  std::vector<Address> addresses;
  if (settings_.member.rules.coordinators_announce) {
    addresses = member_.known_addresses();
    addresses.insert(addresses.end(), previous_job_.addresses().begin(), previous_job_.addresses().end());
  }
  announcements_.begin(addresses, settings_.member.listens, settings_.coordinator.lease, now_.steady);
  coordinator_.emplace(settings_.coordinator, authority, now_);
  notify(NodeNotice::Kind::kLeading, "term " + std::to_string(authority.term));
  const auto known_voters = leader_election_.known_voters();
  leader_election_.clear();
  for_coordinator(node_event::LinkOpened{kSelfLink});
  for (const RoundId& origin : arbitration_.won()) for_coordinator(coordinator_event::ArbiterVotes{origin});
  for (const LinkId link : sessions_.links()) for_coordinator(node_event::LinkOpened{link});
  for_member(node_event::LinkOpened{kSelfLink});
  run_internal();
  for (const auto& [link, voter] : known_voters) {
    if (is_connection(link)) for_coordinator(node_event::FromDialler{link, voter.hello});
  }
}

void Node::step_down(const std::string& why) {
  coordinator_.reset();
  if (settings_.member.rules.step_down_revokes_notice) act(coordinator_action::SetDeathNotice{});
  stepped_down_ = now_.steady;
  announcements_.end(actions_);
  std::erase_if(internal_, [](const auto& event) { return std::holds_alternative<CoordinatorEvent>(event); });
  notify(NodeNotice::Kind::kSearching, why);
  for (const LinkId link : sessions_.links()) drop(link);
  for_member(node_event::LinkClosed{kSelfLink});
}

void Node::drop(LinkId link) {
  leader_election_.remove(link);
  act(node_action::CloseLink{sessions_.carrier_of(link)});
  sessions_.end(link);
}

}  // namespace ddprun::rendezvous
