// Implements the coordinator's ends of its sessions, one session for each member. A session (session.hpp) survives a reset of
// its connection. The code is pure: no I/O, no clock.
//
// The problem. The coordinator identifies each member by the link over which its Hello arrived. After a reset, the member
// returns over another connection with a different number. Without this class, the coordinator would detect a lost node and a
// new node, and would end the round.
//
// The idea. We separate two meanings of a LinkId. A link is the coordinator's number for a session and never changes. A
// connection carries the messages of a link and may be replaced. At first a link and its connection have the same number. Node
// translates in both directions: session_link() maps the connection of an incoming message to its link, and carrier_of() maps
// the link of an outgoing message to its connection.
//
// Example: a member joins over link 5. Connection 5 is reset. The member dials again, and its connection is accepted as 6. It
// sends Resume with the id of its session. From now on connection 6 carries link 5, and link 6 no longer exists. The
// coordinator continues to send to link 5.
//
// The two sides may notice a reset at different times. If only the member has noticed the reset, its Resume arrives while
// connection 5 is still open on this node. Then connection 5 is closed and replaced. The later loss of connection 5 must not
// be reported to the coordinator, because 5 is still the number of the session. While a session has no connection, its
// messages are kept and not sent. A connection that already carries a session cannot resume another session. Only a broken or
// hostile member tries to do so.
//
// The cost. Each message needs a lookup of its session. by_connection_ contains only links that have moved to another
// connection. All sessions wait equally long for a new connection, so the queue due_ is always sorted by time. The entry of a
// resumed session stays in due_ until its deadline, and is then skipped.
//
// This class stores which connection carries each session, and until when a new connection may replace a lost one.
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

  // Call this when a connection was accepted. The connection becomes a new link, unless it later resumes an existing session.
  // After a Hello has arrived, call begin() when you send the Welcome, to open the session.
  void accept(LinkId link);
  void begin(LinkId link);
  void end(LinkId link);
  bool knows(LinkId link) const { return sessions_.contains(link); }
  // Returns all links, in the order in which they were accepted.
  std::vector<LinkId> links() const;

  // ---- which connection ----
  //
  // session_link() returns the link that a connection carries. carrier_of() returns the connection that carries a link. The two
  // numbers are equal until the link moves to another connection.
  LinkId session_link(LinkId connection) const;
  LinkId carrier_of(LinkId link) const;
  std::int64_t away() const { return away_count_; }  // number of sessions without a connection

  // ---- messages ----
  //
  // Counts the message and keeps a copy. Returns the connection over which the caller must send the message; nullopt if the
  // session has no connection now.
  std::optional<LinkId> send(LinkId link, FromCoordinator& message);
  struct Incoming {
    bool is_for_coordinator = false;
    std::optional<Received> confirmation{};  // if set, the caller must send this confirmation now
  };
  Incoming receive(LinkId link, const FromMember& message);

  // ---- a reset ----
  //
  // Call this when the connection of the link was reset. Returns false if the link has no session that could be resumed.
  bool lost(LinkId link, Time now);
  struct Return {
    LinkId link = 0;
    LinkId replaced = 0;  // the old connection, which the caller must close; 0 if it is already closed
    Resumed answer{};
    std::vector<FromCoordinator> missing{};
  };
  // Resumes the session that the message names, over the new `connection`. That connection then no longer counts as a link
  // itself. Returns nullopt if the session cannot be resumed, or if the connection already carries a session.
  std::optional<Return> resume(LinkId connection, const Resume& message);
  // Returns a link whose session was not resumed in time; nullopt if there is none. The member of that link counts as lost.
  // Each link is returned once.
  std::optional<LinkId> take_expired(Time now);
  std::optional<Time> next_deadline() const;

 private:
  struct Session {
    SessionId id{};
    bool is_open = false;
    LinkId carrier = 0;
    std::optional<Time> away_until{};
    SessionEnd<FromCoordinator, FromMember> end{};
  };

  Session* find(LinkId link);
  void mark_connected(Session& session);

  Rules rules_;
  nanoseconds lease_;
  std::unordered_map<LinkId, Session> sessions_;
  std::unordered_map<SessionId, LinkId, HashSessionId> by_id_;  // open sessions only
  // maps a connection to its link; contains only links that have moved to another connection
  std::unordered_map<LinkId, LinkId> by_connection_;
  std::deque<std::pair<Time, LinkId>> due_;  // Sorted by time. Entries of resumed sessions are skipped.
  std::int64_t away_count_ = 0;
};

}  // namespace ddprun::rendezvous
