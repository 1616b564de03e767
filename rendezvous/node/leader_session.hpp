// A member's end of its session (session.hpp) with the coordinator. Node passes it what the member says and hears, and what
// becomes of connections; it dials again when one is reset. Pure.
//
// It owns which connection carries the session now, and until when another one may take its place.
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

  // The node goes on under another identity, with sessions of that one.
  void become(const NodeId& self) {
    end();
    self_ = self;
  }
  // A hello over that link may open one, and a Welcome over it does.
  void said_hello(LinkId link, std::uint64_t attempt) { hellos_[link] = attempt; }
  void begin(LinkId link);
  void forget(LinkId link) { hellos_.erase(link); }
  void end();

  // ---- which connection ----
  bool exists() const { return link_ != 0; }
  bool is(LinkId link) const { return exists() && link == link_; }
  // The connection that carries it; the link as the member knows it.
  LinkId carrier() const { return carrier_; }
  LinkId link() const { return link_; }
  bool carried_by(LinkId connection) const { return exists() && connection == carrier_; }
  bool is_away() const { return away_until_.has_value(); }

  // ---- what is said and heard ----
  // True: it can go now.
  bool say(FromMember& message);
  // False: nothing of it is the member's.
  bool hear(const FromCoordinator& message) { return end_.hear(message); }
  std::optional<Received> confirmation() { return is_away() ? std::nullopt : end_.confirmation(); }

  // ---- a reset ----
  // Its connection was lost. Returns the link to dial now, if it may come back.
  std::optional<LinkId> lost(nanoseconds lease, Time now);
  // The attempt failed: it is tried again a moment later. False: there is no time for that.
  bool failed(Time now);
  // The link to dial, if that is due.
  std::optional<LinkId> due(Time now);
  bool is_over(Time now) const { return away_until_ && *away_until_ <= now; }
  std::optional<Time> next_deadline() const;
  Resume resume() const;
  // The other side has had that many. The messages that follow; nothing: it can't go on.
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

// How long a session waits for another connection.
nanoseconds resume_time(const Rules& rules, nanoseconds lease);

}  // namespace ddprun::rendezvous
