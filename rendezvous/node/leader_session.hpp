// Implements the member's end of its session with the coordinator. A session (session.hpp) survives a reset of its connection.
// Node passes the messages of both directions through this class. Node also reports when the connection is lost or a new
// connection is open. After a reset, this class returns the link to dial. The code is pure: no I/O, no clock.
//
// This class stores which connection carries the session, and until when a new connection may replace a lost one.
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
  LeaderSession(const Rules& rules, const NodeId& self, std::uint64_t incarnation) : rules_(rules), id_{self, incarnation} {}

  // Call this when the node starts to use another node id. Ends the session.
  void become(const NodeId& self) {
    end();
    id_.node = self;
  }
  // Call this when a Hello was sent over the link. When the Welcome arrives over that link, call begin() to open the session.
  void sent_hello(LinkId link, std::uint64_t attempt) { hellos_[link] = attempt; }
  void begin(LinkId link);
  void forget(LinkId link) { hellos_.erase(link); }
  void end();

  // ---- which connection ----
  bool exists() const { return link_ != 0; }
  bool is(LinkId link) const { return exists() && link == link_; }
  // carrier() is the connection that carries the session now. link() is the number by which the member identifies the session.
  // A reset does not change this number.
  LinkId carrier() const { return carrier_; }
  LinkId link() const { return link_; }
  bool carried_by(LinkId connection) const { return exists() && connection == carrier_; }
  bool is_away() const { return away_until_.has_value(); }

  // ---- messages ----
  //
  // Counts the message and keeps a copy. Returns true if the caller must send the message now, over carrier().
  bool send(FromMember& message);
  // Counts an incoming message. Returns false if the message is only for the session. The caller must then not pass it to the
  // member.
  bool receive(const FromCoordinator& message) { return end_.receive(message); }
  std::optional<Received> confirmation() { return is_away() ? std::nullopt : end_.confirmation(); }

  // ---- a reset ----
  //
  // Call this when the session's connection was lost. Returns the link to dial now; nullopt if the session cannot be resumed.
  std::optional<LinkId> lost(nanoseconds lease, Time now);
  // Call this when an attempt to resume the session has failed. The next attempt follows after a pause. Returns false if no
  // time is left for another attempt.
  bool failed(Time now);
  // Returns the link to dial now; nullopt if it is too early for the next attempt.
  std::optional<LinkId> due(Time now);
  bool is_over(Time now) const { return away_until_ && *away_until_ <= now; }
  std::optional<Time> next_deadline() const;
  Resume resume() const;
  // Handles the coordinator's reply to Resume. Returns the messages that must be sent again; nullopt if the session can't be
  // resumed.
  std::optional<std::vector<FromMember>> resumed(const Resumed& answer);

 private:
  Rules rules_;
  SessionId id_;
  std::map<LinkId, std::uint64_t> hellos_;
  LinkId link_ = 0;
  LinkId carrier_ = 0;
  std::uint64_t next_carrier_ = 1;
  std::optional<Time> away_until_;
  std::optional<Time> dial_again_;
  SessionEnd<FromMember, FromCoordinator> end_;
};

// Returns how long a session waits for a new connection after a reset.
nanoseconds resume_time(const Rules& rules, nanoseconds lease);

}  // namespace ddprun::rendezvous
