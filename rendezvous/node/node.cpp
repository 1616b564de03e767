// Implementation of node.hpp. The first half carries events and messages between the machines of one node and its links. The
// second half is about who leads: a node without a coordinator collects electors and stands; one that leads visits those that
// may not know it, and steps down.
#include "rendezvous/node/node.hpp"

#include <algorithm>
#include <utility>

#include "common/base/exit_code.hpp"
#include "rendezvous/coordinator/entry.hpp"
#include "rendezvous/node/farewell.hpp"

namespace ddprun::rendezvous {
namespace {

CoordinatorSettings complete(CoordinatorSettings settings, const MemberSettings& member) {
  settings.self = member.id;
  settings.run = member.run;
  return settings;
}

MemberSettings with_id(MemberSettings settings, const Past& past) {
  if (past.self()) settings.id = past.self()->id;
  return settings;
}

}  // namespace

Node::Node(NodeSettings settings, Memory memory, Now now)
    : settings_(std::move(settings)),
      now_(now),
      unknown_id_(settings_.member.id),
      past_(std::move(memory), settings_.alone, settings_.member.rules),
      member_(with_id(settings_.member, past_), past_.record(), now),
      succession_(settings_.member.rules) {
  settings_.member = with_id(std::move(settings_.member), past_);
  settings_.coordinator = complete(std::move(settings_.coordinator), settings_.member);
}

std::vector<NodeAction> Node::on(const NodeEvent& event, Now now) {
  now_ = now;
  if (finished_) return {};
  std::visit([this](const auto& concrete) { handle(concrete); }, event);
  run_inside();
  consider_candidacy();
  run_inside();
  consider_giving_up();
  run_inside();
  visit();
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
  if (coordinator_) {
    consider(coordinator_->next_deadline());
    if (!places_.empty()) consider(next_visit_);
  } else if (may_stand()) {
    consider(succession_.next_attempt(candidate()));
  }
  if (const auto time = may_give_up_at(); time && *time > now_.steady) consider(time);
  return next;
}

// ---- events ----

void Node::handle(const node_event::Begin&) {
  if (past_.remembers_round()) {
    act(member_action::Say{Notice{.kind = Notice::Kind::kLooking,
                                  .text = "an earlier start of this job here was cut off; looking for its other nodes"}});
  }
  if (settings_.leads_first) past_.met_somebody(now_.steady);
  if (settings_.leads_first && knows_no_round()) lead_unelected();
  inside_.emplace_back(ToMember{member_event::Tick{}});
}

void Node::handle(const node_event::LinkOpened& event) {
  if ((event.link & kVisit) != 0) {
    if (!visits_.contains(event.link)) return;
    Hello hello = member_.hello(event.local_host);
    hello.coordinates = true;
    act(node_action::ToListener{event.link, std::move(hello)});
    return;
  }
  if ((event.link & kDialled) != 0) {
    past_.met_somebody(now_.steady);
    inside_.emplace_back(ToMember{member_event::Opened{event.link, event.local_host}});
    return;
  }
  accepted_.insert(event.link);
  if (coordinator_) inside_.emplace_back(ToCoordinator{coordinator_event::Opened{event.link}});
}

void Node::handle(const node_event::LinkClosed& event) {
  if (visits_.erase(event.link) > 0) return;
  if ((event.link & kDialled) != 0) {
    inside_.emplace_back(ToMember{member_event::Closed{event.link}});
    return;
  }
  accepted_.erase(event.link);
  succession_.remove(event.link);
  if (coordinator_) inside_.emplace_back(ToCoordinator{coordinator_event::Closed{event.link}});
}

void Node::handle(const node_event::FromDialler& event) {
  if (!accepted_.contains(event.link)) return;
  if (coordinator_) {
    inside_.emplace_back(ToCoordinator{coordinator_event::Heard{event.link, event.message}});
  } else if (const auto* hello = std::get_if<Hello>(&event.message)) {
    greet(event.link, *hello);
  } else if (const auto* vote = std::get_if<Vote>(&event.message)) {
    succession_.hear(event.link, *vote);
  }
}

void Node::handle(const node_event::FromListener& event) {
  if ((event.link & kVisit) != 0) return hear_visited(event.link, event.message);
  inside_.emplace_back(ToMember{member_event::Heard{event.link, event.message}});
}

void Node::handle(const node_event::Tick&) {
  if (coordinator_) inside_.emplace_back(ToCoordinator{coordinator_event::Tick{}});
  inside_.emplace_back(ToMember{member_event::Tick{}});
}

void Node::handle(const node_event::Farewell& event) {
  const Config& round = member_.standing().current;
  if (coordinator_ || round.id != event.round || round.nodes != 2 || round.rank != 1) return;
  if (coordinator_died_in_ == round.id) return;
  coordinator_died_in_ = round.id;
  act(member_action::Say{Notice{.kind = Notice::Kind::kLooking,
                                .text = "the other node's guardian says that the agent there is dead, and its workers are "
                                        "gone: this one may go on without"}});
  std::vector<MemberAction> actions;
  member_.leader_is_dead(actions);
  carry_out(std::move(actions));
}

void Node::handle(const node_event::Local& event) {
  inside_.emplace_back(ToMember{event.event});
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
              act(node_action::ToListener{concrete.link, std::move(concrete.message)});
            }
          } else if constexpr (std::is_same_v<Action, member_action::Close>) {
            if (concrete.link == kSelfLink) {
              inside_.emplace_back(ToCoordinator{coordinator_event::Closed{kSelfLink}});
              if (coordinator_ && member_.looking()) {  // it had no grant for a while; it comes back as others do
                inside_.emplace_back(ToCoordinator{coordinator_event::Opened{kSelfLink}});
                inside_.emplace_back(ToMember{member_event::Opened{kSelfLink}});
              }
            } else {
              act(node_action::CloseLink{concrete.link});
            }
          } else if constexpr (std::is_same_v<Action, member_action::JobOver>) {
            if (auto left = past_.end(concrete, member_.record(), coordinator_.has_value())) {
              act(member_action::Remember{*std::move(left), settings_.member.id});
            }
            finish_ = node_action::Finish{concrete.exit_code, std::move(concrete.why)};
          } else if constexpr (std::is_same_v<Action, member_action::Resign>) {
            if (coordinator_) step_down("the others choose another coordinator");
          } else {
            act(std::move(concrete));
          }
        },
        action);
  }
}

void Node::carry_out(std::vector<CoordinatorAction> actions) {
  for (CoordinatorAction& action : actions) {
    std::visit(
        [this](auto& concrete) {
          using Action = std::decay_t<decltype(concrete)>;
          if constexpr (std::is_same_v<Action, coordinator_action::Send>) {
            if (concrete.link == kSelfLink) {
              inside_.emplace_back(ToMember{member_event::Heard{kSelfLink, std::move(concrete.message)}});
            } else {
              act(node_action::ToDialler{concrete.link, std::move(concrete.message)});
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
  if (!makes_sense(hello.standing)) return refuse(Refusal::kBadHello, "what it says of its last round makes no sense");
  if (hello.node == settings_.member.id) return drop(link);  // its own address under another name
  if (member_.over()) {
    drop(link);
  } else if (member_.following()) {
    redirect(link);
  } else if (hello.coordinates) {
    const std::uint64_t promised = member_.standing().promised_term;
    if (hello.standing.promised_term < promised) {  // it can't be followed before it is elected for a later term
      act(node_action::ToDialler{link, Redirect{.term = promised, .coordinator = {}}});
    } else {
      member_.also_try(hello.listens);
      inside_.emplace_back(ToMember{member_event::Tick{}});
      for (const auto& [other, elector] : succession_.electors()) {
        act(node_action::ToDialler{other, Redirect{.term = hello.standing.promised_term, .coordinator = hello.listens}});
      }
    }
    drop(link);
  } else {
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
          .standing = member_.standing(),
          .place_in_line = member_.place_in_line(),
          .may_stand_at = member_.may_stand_at(),
          .lease = settings_.coordinator.lease,
          .roster = &member_.roster()};
}

void Node::consider_candidacy() {
  if (!may_stand()) return;
  unfit_ = false;
  count_the_dead();
  if (succession_.attempt(candidate(), now_)) {
    std::vector<MemberAction> actions;
    if (!member_.promise(succession_.election()->term, now_, actions)) return;
    carry_out(std::move(actions));
    const std::uint64_t term = succession_.election()->term;
    for (const auto& [link, elector] : succession_.electors()) {
      if (link != kOfTheDead) act(node_action::ToDialler{link, succession_.request_for(candidate())});
    }
    succession_.hear(kOfTheDead, Vote{.term = term, .promised_term = term});
  }
  if (const auto won = succession_.won(candidate())) {
    Authority authority{.term = won->promised_term, .elected = true, .known = *won, .roster = member_.roster()};
    if (succession_.electors().contains(kOfTheDead)) authority.departed = {member_.record().coordinator.node, 0};
    lead(authority);
  }
}

// Of two nodes the one without group rank 0 is no majority. When the other is dead for good, its vote is nobody's but this
// one's.
void Node::count_the_dead() {
  const Standing& standing = member_.standing();
  if (!coordinator_died_in_ || *coordinator_died_in_ != standing.current.id || succession_.electors().contains(kOfTheDead))
    return;
  succession_.add(kOfTheDead, hello_of_the_dead(member_.record()));
}

// ---- what it remembers ----

std::optional<Time> Node::may_give_up_at() const {
  if (!looks_for_old_job() || member_.has_workers() || member_.over()) return std::nullopt;
  return past_.may_give_up_at(now_.steady);
}

// As somebody else it could not be elected any more by those who remember it: so one that is to lead waits for enough others
// who don't.
bool Node::enough_know_nothing() {
  std::set<NodeId> here{settings_.member.id};
  for (const auto& [link, elector] : succession_.electors()) {
    if (!elector.hello.standing.current.exists()) here.insert(elector.hello.node);
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
  const auto due = may_give_up_at();
  if (!due || *due > now_.steady) return;
  if (settings_.leads_first && !enough_know_nothing()) return;
  std::vector<MemberAction> closed;
  member_.abandon(closed);
  carry_out(std::move(closed));
  settings_.member.id = settings_.coordinator.self = unknown_id_;
  settings_.member.first_link = LinkId{1} << 32;
  member_ = Member(settings_.member, past_.give_up(member_.record()), now_);
  act(member_action::Remember{member_.record(), settings_.member.id});
  if (settings_.leads_first) return lead_unelected();
  inside_.emplace_back(ToMember{member_event::Tick{}});
}

// ---- leading ----

// Nodes that were away while this one was elected don't know its address; they look where they met before.
void Node::visit() {
  if (!coordinator_ || places_.empty() || next_visit_ > now_.steady) return;
  next_visit_ = now_.steady + settings_.coordinator.lease;
  for (const LinkId link : std::exchange(visits_, {})) act(node_action::CloseLink{link});
  for (const Address& place : places_) {
    if (coordinator_->knows(place)) continue;
    const LinkId link = kDialled | kVisit | next_visit_link_++;
    visits_.insert(link);
    act(member_action::Dial{link, place});
  }
}

void Node::hear_visited(LinkId link, const FromCoordinator& message) {
  if (visits_.erase(link) == 0) return;
  act(node_action::CloseLink{link});
  const auto* redirect = std::get_if<Redirect>(&message);
  if (!coordinator_ || redirect == nullptr || redirect->term <= coordinator_->term()) return;
  step_down("a later term is known elsewhere");
  succession_.note_term(redirect->term);
  member_.also_try(redirect->coordinator);
}

// A job's first coordinator needs no votes: whoever knows a round makes it step down.
void Node::lead_unelected() {
  const FirstRound first = past_.first_round(member_.record(), settings_.coordinator, now_.steady);
  const std::uint64_t term = past_.first_term(member_.record(), settings_.member.incarnation);
  std::vector<MemberAction> actions;
  if (!member_.promise(term, now_, actions)) return;
  carry_out(std::move(actions));
  lead(Authority{.term = term, .elected = false, .first = first, .known = member_.standing()});
}

// It stepped down for a node that remembered an earlier job. Had others of that job been there, somebody would lead by now;
// and who is here has given the old job up.
bool Node::may_lead_again() const {
  if (!settings_.leads_first || !stepped_down_ || now_.steady < *stepped_down_ + kLookForOldJob || !knows_no_round())
    return false;
  const auto& electors = succession_.electors();
  return std::none_of(electors.begin(), electors.end(),
                      [](const auto& each) { return each.second.hello.standing.current.exists(); });
}

void Node::lead(const Authority& authority) {
  places_.clear();
  auto places = settings_.member.rules.coordinators_visit ? member_.known_places() : std::vector<Address>();
  if (settings_.member.rules.coordinators_visit) places.insert(places.end(), past_.places().begin(), past_.places().end());
  for (const Address& place : places) {
    const bool known = std::find(places_.begin(), places_.end(), place) != places_.end();
    if (place.port != 0 && place != settings_.member.listens && !known) places_.push_back(place);
  }
  next_visit_ = now_.steady + settings_.coordinator.lease / 5;
  coordinator_.emplace(settings_.coordinator, authority, now_);
  act(member_action::Say{Notice{.kind = Notice::Kind::kLeading, .text = "term " + std::to_string(authority.term)}});
  const auto electors = succession_.electors();
  succession_.clear();
  inside_.emplace_back(ToCoordinator{coordinator_event::Opened{kSelfLink}});
  for (const LinkId link : accepted_) inside_.emplace_back(ToCoordinator{coordinator_event::Opened{link}});
  inside_.emplace_back(ToMember{member_event::Opened{kSelfLink}});
  run_inside();
  for (const auto& [link, elector] : electors) {
    if (link == kOfTheDead) continue;
    inside_.emplace_back(ToCoordinator{coordinator_event::Heard{link, elector.hello}});
  }
}

void Node::step_down(const std::string& why) {
  coordinator_.reset();
  if (settings_.member.rules.who_steps_down_revokes) act(coordinator_action::Entrust{});
  stepped_down_ = now_.steady;
  for (const LinkId link : std::exchange(visits_, {})) act(node_action::CloseLink{link});
  std::erase_if(inside_, [](const Inside& item) { return std::holds_alternative<ToCoordinator>(item); });
  act(member_action::Say{Notice{.kind = Notice::Kind::kLooking, .text = why}});
  while (!accepted_.empty()) drop(*accepted_.begin());
  inside_.emplace_back(ToMember{member_event::Closed{kSelfLink}});
}

void Node::drop(LinkId link) {
  accepted_.erase(link);
  succession_.remove(link);
  act(node_action::CloseLink{link});
}

}  // namespace ddprun::rendezvous
