// Implementation of node.hpp: carries messages between the machines of one node and the links, and makes a candidate a
// coordinator.
#include "rendezvous/machines/node.hpp"

#include <algorithm>
#include <utility>

#include "common/base/exit_code.hpp"

namespace ddprun::rendezvous {
namespace {

CoordinatorSettings complete(CoordinatorSettings settings, const MemberSettings& member) {
  settings.self = member.id;
  settings.run = member.run;
  return settings;
}

}  // namespace

Node::Node(NodeSettings settings, std::optional<Record> record, Now now)
    : settings_(std::move(settings)),
      now_(now),
      member_(settings_.member, std::move(record), now),
      succession_(settings_.member.rules) {
  settings_.coordinator = complete(std::move(settings_.coordinator), settings_.member);
}

std::vector<NodeAction> Node::on(const NodeEvent& event, Now now) {
  now_ = now;
  if (finished_) return {};
  std::visit([this](const auto& concrete) { handle(concrete); }, event);
  run_inside();
  consider_candidacy();
  run_inside();
  visit();
  if (finish_ && !coordinator_ && !finished_) {
    finished_ = true;
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
  } else if (member_.looking()) {
    consider(succession_.next_attempt(candidate()));
  }
  return next;
}

// ---- events ----

void Node::handle(const node_event::Begin&) {
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
            step_down(concrete.why);
            succession_.note_term(concrete.term);
            member_.also_try(concrete.leader);
          } else if constexpr (std::is_same_v<Action, coordinator_action::KeepRoster>) {
            std::vector<MemberAction> kept;
            member_.keep_roster(std::move(concrete.roster), kept);
            carry_out(std::move(kept));
          } else {
            static_assert(std::is_same_v<Action, coordinator_action::Finished>);
            step_down("the job is over");
          }
        },
        action);
  }
}

}  // namespace ddprun::rendezvous
