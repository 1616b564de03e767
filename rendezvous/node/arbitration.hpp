// If the two nodes of a round lose contact, the arbiter decides which of them may lead. This class queries the arbiter, stores
// the answers, and counts the arbiter's vote like that of an elector. node.hpp owns one, and reports in which rounds this node
// is alone. Pure.
//
// The arbiter gives its vote in a round to the first node that asks, permanently. It repeats that answer to every later query,
// so a lost answer costs only one more query. A coordinator asks well before its lease ends, and its workers continue. A member
// asks only when no coordinator can still lead it, so that a healthy coordinator is first. The vote does not prove that the
// other node is dead. So the node that gets it waits for the other's leases, as in any election.
//
// This class owns the rounds that this node has won or lost, and the pending query.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/member/record.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// A query: the vote of that arbiter in that round.
struct Ballot {
  Arbiter arbiter = Arbiter::kNone;
  NodeId founder{};
  RoundId origin{};
  bool operator==(const Ballot&) const = default;
};
enum class BallotAnswer { kMine, kOthers, kNone };

class Arbitration {
 public:
  // `remembered` is the round of an earlier process of this node. This process does not know that round's run directory, since
  // its path may lead to another directory by now.
  Arbitration(const Rules& rules, const Config& remembered) : rules_(rules), remembered_(remembered.origin()) {}

  // Call it after each change of the rounds in which this node is alone. Returns the query to send now, if any.
  std::optional<Ballot> ask(const std::vector<Config>& alone_in, nanoseconds lease, Time now);
  std::optional<Time> next_deadline() const { return again_at_; }
  // `why` is the reason for a missing answer.
  void hear(const Ballot& ballot, BallotAnswer answer, const std::string& why, Time now);

  // The origins of the rounds that this node has won.
  const std::vector<RoundId>& won() const { return won_; }
  // The arbiter as an elector of this node, whose record is passed in; nullopt if it has not voted for this node.
  std::optional<Hello> elector(const Record& record) const;
  // The reason why this node did not continue, to be appended to a message. Empty if no arbiter was involved.
  std::string why_not() const;

 private:
  Rules rules_;
  RoundId remembered_;
  std::vector<RoundId> won_;
  std::vector<RoundId> lost_;
  std::optional<Ballot> asked_;  // the query without an answer yet
  std::optional<Time> again_at_;
  nanoseconds pause_{};
  std::string no_answer_;
};

}  // namespace ddprun::rendezvous
