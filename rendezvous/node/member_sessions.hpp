// A coordinator's ends of the sessions (session.hpp) with its members. Pure.
//
// The problem. The coordinator knows each member by the link that its Hello came over. After a reset the member is back over
// another connection, with another number. The coordinator would take that for a loss and a new node, and end the round.
//
// The idea. We separate two meanings of a LinkId. A link names the session for the coordinator and never changes. A connection
// carries it and may be replaced. At first both have the same number. Node translates: messages from a connection go to the
// link behind it (link_behind), messages for a link go over its carrier (carrier_of).
//
// Example: a member joins over link 5. Connection 5 is reset. The member dials again, and its connection is accepted as 6. It
// sends Resume with the id of its session. From now on 6 carries link 5, and link 6 does not exist any more. The coordinator
// continues to send to link 5.
//
// The two sides may notice a reset at different times. If only the member has noticed it, its Resume arrives while connection 5
// still looks open. Then connection 5 is closed and replaced. Its loss must not be reported after that, since 5 still names the
// session. While a session has no connection, its messages are kept and not sent. A connection that carries a session cannot
// take over another one: only a broken or hostile member tries that.
//
// The cost. Each message looks up its session. by_connection_ contains only links that have moved. All sessions wait equally
// long, so due_ is in the order of time without a heap. Entries of resumed sessions stay in it until they are due, and are
// skipped.
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

  // A connection was accepted: it is a link of its own until it resumes a session. A Hello names its session, and begin() with
  // the Welcome opens it.
  void accept(LinkId link);
  void begin(LinkId link);
  void end(LinkId link);
  bool knows(LinkId link) const { return sessions_.contains(link); }
  // All links, in the order in which they were accepted.
  std::vector<LinkId> links() const;

  // ---- which connection ----
  // The link that the coordinator knows for a connection, and the connection that carries a link. Both have the same number
  // until the link moves.
  LinkId link_behind(LinkId connection) const;
  LinkId carrier_of(LinkId link) const;
  std::int64_t away() const { return away_count_; }  // sessions that have no connection now

  // ---- messages ----
  // Counts and keeps the message. Returns the connection to send it over; nullopt: the session has none now.
  std::optional<LinkId> say(LinkId link, FromCoordinator& message);
  struct Heard {
    bool is_for_coordinator = false;
    std::optional<Received> confirmation{};  // to send now
  };
  Heard hear(LinkId link, const FromMember& message);

  // ---- a reset ----
  // The link's connection was reset. False: it has no session that could be resumed.
  bool lost(LinkId link, Time now);
  struct Return {
    LinkId link = 0;
    LinkId replaced = 0;  // the old connection, to close now, if its loss was not noticed yet; 0: none
    Resumed answer{};
    std::vector<FromCoordinator> missing{};
  };
  // Makes an accepted connection the carrier of the session that the message names. Its own link ceases to exist. nullopt: no
  // such session can be resumed, or the connection carries a session already.
  std::optional<Return> resume(LinkId connection, const Resume& message);
  // A link whose session was not resumed in time: the member is lost. Returns each link once.
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
  std::unordered_map<SessionId, LinkId, HashSessionId> by_id_;  // begun sessions only
  std::unordered_map<LinkId, LinkId> by_connection_;            // connection to link, for links that have moved
  std::deque<std::pair<Time, LinkId>> due_;                     // in the order of time; resumed sessions are skipped
  std::int64_t away_count_ = 0;
};

}  // namespace ddprun::rendezvous
