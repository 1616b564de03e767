// A coordinator's ends of the sessions (session.hpp) with its members, by the links that its state machine knows. Node passes
// it the messages over accepted links in both directions, and reports connections that open or close; after a reset it waits
// for the member. Pure.
//
// This class owns which connection carries each session now, and until when another one may replace it.
#pragma once

#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/node/session.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

class MemberSessions {
 public:
  MemberSessions(const Rules& rules, nanoseconds lease) : rules_(rules), lease_(lease) {}

  // A link was accepted. A Hello over it may open a session, and a Welcome over it does.
  void accept(LinkId link);
  void begin(LinkId link);
  void end(LinkId link);
  bool knows(LinkId link) const { return sessions_.contains(link); }
  // In the order in which they were accepted.
  std::vector<LinkId> links() const;

  // ---- which connection ----
  // The link that the state machine knows for a connection, and the connection that carries a link. Without a session both are
  // the same.
  LinkId link_behind(LinkId connection) const;
  LinkId carrier_of(LinkId link) const;
  std::int64_t away() const { return away_count_; }

  // ---- what is said and heard ----
  // The connection over which the message can be sent now, if there is one.
  std::optional<LinkId> say(LinkId link, FromCoordinator& message);
  struct Heard {
    bool is_for_coordinator = false;
    std::optional<Received> confirmation{};  // to be sent now
  };
  Heard hear(LinkId link, const FromMember& message);

  // ---- a reset ----
  // The link's connection was lost. False: the session can't be resumed.
  bool lost(LinkId link, Time now);
  struct Return {
    LinkId link = 0;
    LinkId replaced = 0;  // the old connection, if its loss was not noticed yet; 0: none
    Resumed answer{};
    std::vector<FromCoordinator> missing{};
  };
  // That connection was accepted as a link of its own, which it is no more. Nothing: no such session is left, or the connection
  // carries one already.
  std::optional<Return> resume(LinkId connection, const Resume& message);
  // A link to which no connection came back in time. Each is returned once.
  std::optional<LinkId> take_over(Time now);
  std::optional<Time> next_deadline() const;

 private:
  struct Session {
    SessionId id{};
    bool begun = false;
    LinkId carrier = 0;
    std::optional<Time> away_until{};
    SessionEnd<FromCoordinator, FromMember> end{};
  };

  Session* find(LinkId link);
  void back(Session& session);

  Rules rules_;
  nanoseconds lease_;
  std::unordered_map<LinkId, Session> sessions_;
  std::unordered_map<SessionId, LinkId, HashSessionId> by_id_;  // sessions that have begun
  std::unordered_map<LinkId, LinkId> by_connection_;            // only links that another connection carries than at first
  std::deque<std::pair<Time, LinkId>> due_;                     // in the order of time; sessions that were resumed are skipped
  std::int64_t away_count_ = 0;
};

}  // namespace ddprun::rendezvous
