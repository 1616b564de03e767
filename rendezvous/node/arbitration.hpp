// If the two nodes of a round lose contact, an arbiter (an etcd server or a shared run directory) decides which node
// continues. This class decides when to query the arbiter, stores the arbiter's answers, and provides the arbiter's vote for
// elections. The code is pure (no I/O, no clock). Node (node.hpp) uses this class, and passes in the rounds in which this node
// is alone.
//
// In each round an arbiter votes permanently for the first node that queries it, and returns the same answer to every later
// query. So a lost answer costs only one more query. A coordinator queries well before its lease ends, so its workers can
// continue. A member queries only after its coordinator's lease has certainly ended, so a healthy coordinator always queries
// first. The vote does not prove that the other node is dead. So the winner waits until the leases of the other node have
// ended, as in any election.
//
// This class owns the rounds in which this node has won or lost the vote, and the pending query.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/member/record.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// Identifies one vote of an arbiter: the arbiter, the round's founder (the coordinator that started it), and origin() of the
// round.
struct Ballot {
  Arbiter arbiter = Arbiter::kNone;
  NodeId founder{};
  RoundId origin{};
  bool operator==(const Ballot&) const = default;
};
enum class BallotAnswer { kMine, kOthers, kNone };

class Arbitration {
 public:
  // `remembered` is the round of an earlier process of this node. For that round, this process must not use the run directory
  // as the arbiter, because the same path may now refer to another directory.
  Arbitration(const Rules& rules, const Config& remembered) : rules_(rules), remembered_(remembered.origin()) {}

  // Returns the query to send now; nullopt if no query is needed. `alone_in` contains the rounds in which the other node does
  // not answer. Call this after each event.
  std::optional<Ballot> query(const std::vector<Config>& alone_in, nanoseconds lease, Time now);
  std::optional<Time> next_deadline() const { return retry_at_; }
  // Handles the arbiter's reply. If `answer` is kNone, `why` explains why the arbiter did not answer.
  void receive(const Ballot& ballot, BallotAnswer answer, const std::string& why, Time now);

  // Returns the rounds in which the arbiter has voted for this node, identified by Config::origin().
  const std::vector<RoundId>& won() const { return won_; }
  // Returns the Hello of an artificial node that represents the arbiter, so that an election counts its vote like any other
  // vote. `record` is this node's record. Returns nullopt if the arbiter has not voted for this node in a round of that record.
  std::optional<Hello> voter(const Record& record) const;
  // Returns the reason why this node did not get the vote, as a suffix for a message; the suffix is empty if no arbiter was
  // queried.
  std::string why_not() const;

 private:
  Rules rules_;
  RoundId remembered_;
  std::vector<RoundId> won_;
  std::vector<RoundId> lost_;
  std::optional<Ballot> pending_;  // the query that was sent and is not answered yet
  std::optional<Time> retry_at_;
  nanoseconds pause_{};
  std::string no_answer_;
};

}  // namespace ddprun::rendezvous
