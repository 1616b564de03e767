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

  // A Hello over that link may open a session, and a Welcome over it does.
  void heard_hello(LinkId link, const Hello& hello);
  void begin(LinkId link);
  void end(LinkId link);
  void end_all();

  // ---- which connection ----
  // The link that the state machine knows for a connection, and the connection that carries a link. Without a session both are
  // the same.
  LinkId link_behind(LinkId connection) const;
  LinkId carrier_of(LinkId link) const;
  std::int64_t away() const { return away_count_; }

  // ---- what is said and heard ----
  // True: the message can be sent now.
  bool say(LinkId link, FromCoordinator& message);
  // False: the message is not for the coordinator.
  bool hear(LinkId link, const FromMember& message);
  std::optional<Received> confirmation(LinkId link);

  // ---- a reset ----
  // The link's connection was lost. False: the session can't be resumed.
  bool lost(LinkId link, Time now);
  struct Return {
    LinkId link = 0;
    LinkId replaced = 0;  // the old connection, if its loss was not noticed yet; 0: none
    Resumed answer{};
    std::vector<FromCoordinator> missing{};
  };
  // Nothing: no such session is left.
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
