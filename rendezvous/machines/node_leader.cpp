// Implementation of node.hpp, second part: who leads. A node without a coordinator collects electors and stands; one that leads
// visits those that may not know it, and steps down.
#include <algorithm>
#include <utility>

#include "rendezvous/machines/node.hpp"

namespace ddprun::rendezvous {

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
  if (coordinator_ || !member_.looking()) return;
  if (succession_.attempt(candidate(), now_)) {
    std::vector<MemberAction> actions;
    if (!member_.promise(succession_.election()->term, now_, actions)) return;
    carry_out(std::move(actions));
    for (const auto& [link, elector] : succession_.electors()) {
      act(node_action::ToDialler{link, succession_.request_for(candidate())});
    }
  }
  if (const auto won = succession_.won(candidate())) {
    lead(Authority{.term = won->promised_term, .elected = true, .known = *won, .roster = member_.roster()});
  }
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
  const std::uint64_t term = member_.standing().promised_term + 1;
  std::vector<MemberAction> actions;
  if (!member_.promise(term, now_, actions)) return;
  carry_out(std::move(actions));
  lead(Authority{.term = term, .elected = false, .known = member_.standing()});
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
  const auto places = settings_.member.rules.coordinators_visit ? member_.known_places() : std::vector<Address>();
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
    inside_.emplace_back(ToCoordinator{coordinator_event::Heard{link, elector.hello}});
  }
}

void Node::step_down(const std::string& why) {
  coordinator_.reset();
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
