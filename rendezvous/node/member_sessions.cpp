#include "rendezvous/node/member_sessions.hpp"

#include <algorithm>

#include "rendezvous/node/leader_session.hpp"

namespace ddprun::rendezvous {

MemberSessions::Session* MemberSessions::find(LinkId link) {
  const auto found = sessions_.find(link);
  return found == sessions_.end() || !found->second.is_open ? nullptr : &found->second;
}

void MemberSessions::accept(LinkId link) {
  sessions_[link].carrier = link;
}

void MemberSessions::begin(LinkId link) {
  const auto found = sessions_.find(link);
  if (found == sessions_.end() || found->second.is_open) return;
  found->second.is_open = true;
  by_id_.insert_or_assign(found->second.id, link);
}

void MemberSessions::end(LinkId link) {
  const auto found = sessions_.find(link);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  mark_connected(session);
  by_connection_.erase(session.carrier);
  if (const auto known = by_id_.find(session.id); known != by_id_.end() && known->second == link) by_id_.erase(known);
  sessions_.erase(found);
}

std::vector<LinkId> MemberSessions::links() const {
  std::vector<LinkId> links;
  links.reserve(sessions_.size());
  for (const auto& [link, session] : sessions_) links.push_back(link);
  std::sort(links.begin(), links.end());
  return links;
}

LinkId MemberSessions::session_link(LinkId connection) const {
  const auto found = by_connection_.find(connection);
  return found == by_connection_.end() ? connection : found->second;
}

LinkId MemberSessions::carrier_of(LinkId link) const {
  const auto found = sessions_.find(link);
  return found == sessions_.end() ? link : found->second.carrier;
}

std::optional<LinkId> MemberSessions::send(LinkId link, FromCoordinator& message) {
  const auto found = sessions_.find(link);
  if (found == sessions_.end()) return link;
  Session& session = found->second;
  if (session.is_open) session.end.send(message);
  return session.away_until ? std::nullopt : std::optional(session.carrier);
}

MemberSessions::Incoming MemberSessions::receive(LinkId link, const FromMember& message) {
  const auto found = sessions_.find(link);
  if (found == sessions_.end()) return {};
  Session& session = found->second;
  if (!session.is_open) {
    if (const auto* hello = std::get_if<Hello>(&message)) session.id = hello->session();
    return {.is_for_coordinator = true};
  }
  if (!session.end.receive(message)) return {};
  return {.is_for_coordinator = true, .confirmation = session.away_until ? std::nullopt : session.end.confirmation()};
}

bool MemberSessions::lost(LinkId link, Time now) {
  Session* const session = find(link);
  const nanoseconds time = resume_time(rules_, lease_);
  if (session == nullptr || time <= nanoseconds{0}) return false;
  if (!session->away_until) {
    ++away_count_;
    session->away_until = now + time;
    due_.emplace_back(now + time, link);
  }
  by_connection_.erase(session->carrier);
  session->carrier = 0;
  return true;
}

void MemberSessions::mark_connected(Session& session) {
  if (!session.away_until) return;
  session.away_until.reset();
  --away_count_;
}

std::optional<MemberSessions::Return> MemberSessions::resume(LinkId connection, const Resume& message) {
  if (find(connection) != nullptr) return std::nullopt;  // The connection already carries another session.
  const auto known = by_id_.find(message.session);
  if (known == by_id_.end()) return std::nullopt;
  const LinkId link = known->second;
  Session& session = sessions_.at(link);
  if (!session.end.resume(message.received)) return std::nullopt;
  Return result{.link = link, .replaced = session.carrier, .answer = {session.end.received()}, .missing = {}};
  if (rules_.missed_messages_are_resent) result.missing = session.end.missing();
  mark_connected(session);
  by_connection_.erase(session.carrier);
  sessions_.erase(connection);
  session.carrier = connection;
  by_connection_.emplace(connection, link);
  return result;
}

std::optional<LinkId> MemberSessions::take_expired(Time now) {
  while (!due_.empty() && due_.front().first <= now) {
    const auto [time, link] = due_.front();
    due_.pop_front();
    const Session* const session = find(link);
    if (session != nullptr && session->away_until == time) return link;
  }
  return std::nullopt;
}

std::optional<Time> MemberSessions::next_deadline() const {
  return due_.empty() ? std::nullopt : std::optional(due_.front().first);
}

}  // namespace ddprun::rendezvous
