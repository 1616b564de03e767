// Elections (Raft, with PreVote): how a node without a coordinator becomes one. Its electors are the nodes that dialled it and
// look for a coordinator too. When they are a majority of the newest round that any of them knows (quorum.hpp), and its turn
// has come, it asks them for their votes; a majority of votes makes it the coordinator of a new term. Pure; node.hpp holds one.
// Of a round of two nodes the arbiter decides instead (arbitration.hpp).
//
// A node asks only with a majority at hand, so terms do not grow in an isolated part of the network. The order of the
// candidates (first the old coordinator or the lowest successor) only makes it likely that one asks at a time; the votes make
// sure that at most one wins.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/node/support.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

class Succession {
 public:
  struct Elector {
    Hello hello;
    std::optional<Vote> vote;
  };
  struct Election {
    std::uint64_t term = 0;
    Time asked{};
  };
  // What this node itself contributes.
  struct Candidate {
    NodeId id{};
    PersistentState state{};
    std::size_t place_in_line = 0;
    Time may_stand_at{};
    nanoseconds lease{};
    const Roster* roster = nullptr;  // of the newest round that this node released
  };

  explicit Succession(const Rules& rules) : here_(rules), voters_(rules) {}

  void add(LinkId link, const Hello& hello);
  void remove(LinkId link);
  const std::map<LinkId, Elector>& electors() const { return electors_; }
  bool somebody_knows_a_round() const { return !by_round_.empty(); }
  void clear();

  // When to ask for votes next, if nothing else happens. That time may have passed already.
  std::optional<Time> next_attempt(const Candidate& self) const;
  // Begins an election if it is time and there are enough electors. Then the caller promises the term and sends `request_for`
  // to all.
  bool attempt(const Candidate& self, Now now);
  VoteRequest request_for(const Candidate& self) const;
  void hear(LinkId link, const Vote& vote);
  // The result of an election that was won: the term as promised_term, and the rounds that a majority supports.
  std::optional<PersistentState> won(const Candidate& self) const;
  // Whether the budget that it inherits has counted a failure of the round that it inherits: a round that the coordinator
  // before had released after that failure, and that too few had heard of.
  bool has_judged(const Candidate& self, const PersistentState& base) const;
  const std::optional<Election>& election() const { return election_; }
  // Another node has that term: the next election is for a later one.
  void note_term(std::uint64_t term);

  // How many electors were counted until now: tests measure the work by it.
  std::int64_t counted() const { return here_.counted() + voters_.counted(); }

 private:
  const PersistentState& newest(const Candidate& self) const;
  bool known_committed(const Candidate& self, const Config& round) const;
  void know_roster(const Candidate& self, const PersistentState& base) const;
  std::optional<PersistentState> basis(const Candidate& self, Support& support) const;

  std::map<LinkId, Elector> electors_;
  std::map<RoundId, std::map<LinkId, const PersistentState*>> by_round_;  // the newest rounds that each elector knows
  std::map<RoundId, int> committed_;  // how many electors know that the round with that origin is committed
  mutable ReleasedRanks released_;    // of the roster, while a round in question is the roster's
  mutable Support here_;
  mutable Support voters_;
  std::optional<Election> election_;
  std::uint64_t highest_term_ = 0;  // of all terms that were seen
  Time not_before_{};
  int failed_ = 0;  // elections that failed in a row
};

}  // namespace ddprun::rendezvous
