// A coordinator's ends of the sessions (session.hpp) with its members, by the links that its machine knows them by. Node passes
// it what is said and heard over accepted links, and what becomes of connections; it waits for those that were reset. Pure.
//
// It owns which connection carries each session now, and until when another one may take its place.
#pragma once

#include <deque>
#include <map>
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

  // A hello over that link may open one, and a Welcome over it does.
  void heard_hello(LinkId link, const Hello& hello);
  void begin(LinkId link);
  void end(LinkId link);
  void end_all();

  // ---- which connection ----
  // The link as the machine knows it, behind a connection; the connection that carries a link. Themselves without a session.
  LinkId link_behind(LinkId connection) const;
  LinkId carrier_of(LinkId link) const;
  std::int64_t away() const { return away_count_; }

  // ---- what is said and heard ----
  // True: it can go now.
  bool say(LinkId link, FromCoordinator& message);
  // False: nothing of it is the coordinator's.
  bool hear(LinkId link, const FromMember& message);
  std::optional<Received> confirmation(LinkId link);

  // ---- a reset ----
  // Its connection was lost. False: it can't come back.
  bool lost(LinkId link, Time now);
  struct Return {
    LinkId link = 0;
    LinkId replaced = 0;  // a connection whose loss was not noticed yet; 0: none
    Resumed answer{};
    std::vector<FromCoordinator> missing{};
  };
  // Nothing: no such session is left.
  std::optional<Return> resume(LinkId connection, const Resume& message);
  // A link that nobody came back to in time, each once.
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
  std::map<SessionId, LinkId> by_id_;                 // those that have begun
  std::unordered_map<LinkId, LinkId> by_connection_;  // of those that another one carries than at first
  std::deque<std::pair<Time, LinkId>> due_;           // in the order of time; those that are back are skipped
  std::int64_t away_count_ = 0;
};

}  // namespace ddprun::rendezvous
