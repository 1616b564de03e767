// The part of Node (node.hpp) that keeps sessions (session.hpp) over connections that are reset: on the way in and out, and
// when a connection goes or comes back.
#include <utility>

#include "rendezvous/node/node.hpp"

namespace ddprun::rendezvous {

// ---- with the coordinator of this node's member ----

void Node::to_leader(LinkId link, FromMember message) {
  if (const auto* hello = std::get_if<Hello>(&message)) leader_session_.said_hello(link, hello->attempt);
  if (!leader_session_.is(link)) return act(node_action::ToListener{link, std::move(message)});
  if (leader_session_.say(message)) act(node_action::ToListener{leader_session_.carrier(), std::move(message)});
}

void Node::leader_connection_lost(const node_event::LinkClosed& event) {
  if (leader_session_.is_away()) {  // an attempt to come back
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

// ---- with those that dialled ----

void Node::to_member(LinkId link, FromCoordinator message) {
  if (std::holds_alternative<Welcome>(message)) sessions_.begin(link);
  if (sessions_.say(link, message)) act(node_action::ToDialler{sessions_.carrier_of(link), std::move(message)});
}

void Node::resume(LinkId connection, const Resume& message) {
  if (!accepted_.contains(connection)) return;
  if (coordinator_) inside_.emplace_back(ToCoordinator{coordinator_event::Closed{connection}});  // nobody that it knows
  auto back = coordinator_ ? sessions_.resume(connection, message) : std::nullopt;
  if (!back) return drop(connection);
  accepted_.erase(connection);
  if (back->replaced != 0) act(node_action::CloseLink{back->replaced});
  act(node_action::ToDialler{connection, back->answer});
  for (FromCoordinator& missed : back->missing) act(node_action::ToDialler{connection, std::move(missed)});
}

void Node::lose(LinkId link) {
  accepted_.erase(link);
  succession_.remove(link);
  sessions_.end(link);
  if (coordinator_) inside_.emplace_back(ToCoordinator{coordinator_event::Closed{link}});
}

// ---- time ----

void Node::check_sessions() {
  while (const auto link = sessions_.take_over(now_.steady)) lose(*link);
  if (leader_session_.is_over(now_.steady)) {
    if (leader_session_.carrier() != 0) act(node_action::CloseLink{leader_session_.carrier()});
    lose_leader_session();
  } else if (const auto dial = leader_session_.due(now_.steady)) {
    act(member_action::Dial{*dial, member_.leader_listens()});
  }
}

}  // namespace ddprun::rendezvous
