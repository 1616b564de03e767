// Decides which messages users get about peers that a node cannot reach. Most failures are temporary, because the other nodes
// may still be starting. So a failure is reported only after 3.5 s, and each kind of failure only once. A wrong token or
// version is permanent, so it ends this process immediately. After the node has joined a job, no failure is reported, because
// another program may now use the address of a lost node. The code is pure (no I/O, no clock). NodeShell (node_shell.hpp) uses
// this class.
#pragma once

#include <set>
#include <string>
#include <variant>

#include "rendezvous/protocol/node_io.hpp"
#include "rendezvous/transport/connector.hpp"

namespace ddprun::rendezvous {

// A message for users: no other node has answered yet. `why` is a possible reason.
struct NoNodeAnswers {
  std::string why;
};

class UnreachablePeers {
 public:
  // monostate: report nothing. Finish: this process ends, because a retry would fail in the same way.
  using Report = std::variant<std::monostate, NoNodeAnswers, node_action::Finish>;

  explicit UnreachablePeers(Time now) : started_at_(now) {}

  // Call this when the node follows a coordinator, or is the coordinator. Nothing is reported from now on.
  void joined() { joined_ = true; }
  Report failed_to_connect(const ConnectFailure& failure, Time now);
  // Call this when the member has closed a connection to `address` over which no message has arrived.
  Report silent(const std::string& address, Time now);
  // If the node ends because it found no other node, appends the last failure to the reason.
  void explain(node_action::Finish& end) const;

 private:
  bool waits_for_long(Time now) const;

  Time started_at_;
  bool joined_ = false;
  std::set<ConnectFailure::Kind> reported_kinds_;
  bool silence_reported_ = false;
  std::string last_failure_;
};

}  // namespace ddprun::rendezvous
