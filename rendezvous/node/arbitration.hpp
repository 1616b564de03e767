// A round of two falls apart, and each node is alone: which of them goes on is the arbiter's to say. This asks it, remembers
// what it said, and makes of its vote an elector's. node.hpp owns one, and tells it in which rounds this node is alone. Pure.
//
// The arbiter gives its vote in a round to the first node that asks, once and for ever, and says so again to whoever asks
// again: an answer that is lost costs a question. A coordinator asks well before its lease ends, and its workers go on; a
// member asks when nobody can still lead it, so that a coordinator that is well is first. A vote is no word about the other
// node: whoever has it waits for the other's leases as in any election.
//
// It owns which rounds are this node's and which are not, and the question that waits for its answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/member/record.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// What is asked: the vote of that arbiter in that round.
struct Ballot {
  Arbiter arbiter = Arbiter::kNone;
  NodeId founder{};
  RoundId origin{};
  bool operator==(const Ballot&) const = default;
};
enum class BallotAnswer { kMine, kOthers, kNone };

class Arbitration {
 public:
  // `remembered`: the round of an earlier process of this node. It knows that round's run directory no more: another one may be
  // at its path by now.
  Arbitration(const Rules& rules, const Config& remembered) : rules_(rules), remembered_(remembered.origin()) {}

  // Called whenever the rounds in which this node is alone may have changed. The question that is to be asked now, if any.
  std::optional<Ballot> ask(const std::vector<Config>& alone_in, nanoseconds lease, Time now);
  std::optional<Time> next_deadline() const { return again_at_; }
  // `why`: there is no answer.
  void hear(const Ballot& ballot, BallotAnswer answer, const std::string& why, Time now);

  // Origins of the rounds that are this node's.
  const std::vector<RoundId>& won() const { return won_; }
  // The arbiter as an elector of this node, whose record that is; nothing while it has not voted for it.
  std::optional<Hello> elector(const Record& record) const;
  // Why this node did not go on, for people: behind what they are told. Empty where no arbiter had a word in it.
  std::string why_not() const;

 private:
  Rules rules_;
  RoundId remembered_;
  std::vector<RoundId> won_;
  std::vector<RoundId> lost_;
  std::optional<Ballot> asked_;  // and not answered
  std::optional<Time> again_at_;
  nanoseconds pause_{};
  std::string no_answer_;
};

}  // namespace ddprun::rendezvous
