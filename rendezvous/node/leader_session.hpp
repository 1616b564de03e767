// A member's end of its session (session.hpp) with the coordinator. Node passes messages through it in both directions, and
// reports connections that open or close. It dials again after a reset. Pure.
//
// This class owns which connection carries the session now, and until when another one may replace it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "rendezvous/node/session.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

class LeaderSession {
 public:
  LeaderSession(const Rules& rules, const NodeId& self, std::uint64_t incarnation)
      : rules_(rules), self_(self), incarnation_(incarnation) {}

  // The node continues under another identity, with new sessions.
  void become(const NodeId& self) {
    end();
    self_ = self;
  }
  // Remembers a Hello on that link. begin() opens the session when the Welcome arrives on the same link.
  void said_hello(LinkId link, std::uint64_t attempt) { hellos_[link] = attempt; }
  void begin(LinkId link);
  void forget(LinkId link) { hellos_.erase(link); }
  void end();

  // ---- which connection ----
  bool exists() const { return link_ != 0; }
  bool is(LinkId link) const { return exists() && link == link_; }
  // The connection that carries the session. link() is the number that the member uses for it.
  LinkId carrier() const { return carrier_; }
  LinkId link() const { return link_; }
  bool carried_by(LinkId connection) const { return exists() && connection == carrier_; }
  bool is_away() const { return away_until_.has_value(); }

  // ---- what is said and heard ----
  // Returns true if the message can be sent now.
  bool say(FromMember& message);
  // Returns false if the message is not for the member.
  bool hear(const FromCoordinator& message) { return end_.hear(message); }
  std::optional<Received> confirmation() { return is_away() ? std::nullopt : end_.confirmation(); }

  // ---- a reset ----
  // The session's connection was lost. Returns the link to dial now, if the session may be resumed.
  std::optional<LinkId> lost(nanoseconds lease, Time now);
  // An attempt to resume failed; it will be repeated after a pause. Returns false if there is no time left for that.
  bool failed(Time now);
  // The link to dial, if a dial is due.
  std::optional<LinkId> due(Time now);
  bool is_over(Time now) const { return away_until_ && *away_until_ <= now; }
  std::optional<Time> next_deadline() const;
  Resume resume() const;
  // The coordinator's answer contains the number of messages that it has received. Returns the messages that it lacks; nullopt
  // if the session can't be resumed.
  std::optional<std::vector<FromMember>> resumed(const Resumed& answer);

 private:
  Rules rules_;
  NodeId self_;
  std::uint64_t incarnation_;
  std::map<LinkId, std::uint64_t> hellos_;
  LinkId link_ = 0;
  LinkId carrier_ = 0;
  std::uint64_t attempt_ = 0;
  std::uint64_t next_carrier_ = 1;
  std::optional<Time> away_until_;
  std::optional<Time> dial_again_;
  SessionEnd<FromMember, FromCoordinator> end_;
};

// How long a session waits for a new connection.
nanoseconds resume_time(const Rules& rules, nanoseconds lease);

}  // namespace ddprun::rendezvous
