// Elections (Raft, with PreVote): how a node without a coordinator becomes the coordinator of a new term. Pure; node.hpp owns
// one.
//
// The problem. The coordinator is gone, and exactly one of the other nodes must replace it. Four things can go wrong:
//   - Two nodes win, and two rounds train at the same time.
//   - A node in an isolated part of the network asks for one term after another. Its high term then deposes a healthy
//     coordinator.
//   - The winner does not know the newest round, and gives its ranks to other nodes.
//   - The lost coordinator was just changing the membership, so the nodes disagree on what a majority is.
//
// The idea. A node without a coordinator dials the old coordinator and the successors that the last release named. Its Hello
// carries its promised term and its rounds. The node that it dials counts it as an elector. It asks for votes only when it and
// its electors are a majority of the newest round that they know (quorum.hpp). That is PreVote without a message of its own,
// and terms do not grow in an isolated part. A node votes once in each term. It waits until 1.25 leases after its last contact
// with a coordinator that may still grant time (voter.hpp). A majority of votes wins.
//
// Example: a leads a round of three, the lease is 5 s, and b and c last heard a at 10.0 s. Then a loses its power. b and c dial
// each other, so each has one elector and is two of three. At 16.25 s both may vote. b is first in line and asks at 16.45 s; c
// would ask at 16.65 s. c votes for b in term 2, and does not stand itself for 0.4 leases. The order only makes two candidates
// unlikely. The votes make two winners impossible.
//
// The difference from Raft. A Raft server refuses its vote to a candidate with an older log. Here the candidate inherits the
// newest round from its electors. A voter's Hello comes over the same link before its vote. So a refusal could never happen,
// and was removed. An election under an uncommitted round takes majorities of that round and of the round before. If so many
// nodes lack it that it can never be committed, the candidate inherits the round before.
//
// Some electors have no connection: the arbiter of a round of two (arbitration.hpp), and a coordinator that is dead by its
// guardian's farewell or has handed over (farewell.hpp).
//
// What was tried. On slow networks votes arrived after their election was given up, and terms grew beyond 100: each failed
// election now doubles the wait. Nodes with slow links overtook each winner with a later term: a voter now stands back. A new
// count of all electors at each event took a hundred million steps for ten thousand nodes: support.hpp counts by one. Nodes
// that introduced others to the one that knows most changed nothing in 30,000 seeds.
//
// The cost. Without a farewell or a handover, no election begins before 1.25 leases without contact. If the coordinator and all
// four successors are lost, no node can be elected. The nodes end with exit code 86.
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
  // This node's own data as a candidate.
  struct Candidate {
    NodeId id{};
    PersistentState state{};
    std::size_t place_in_line = 0;  // 0: the last coordinator, then its successors in order
    Time may_stand_at{};
    nanoseconds lease{};
    const Roster* roster = nullptr;  // nodes of the newest round that this node has released
  };

  explicit Succession(const Rules& rules) : here_(rules), voters_(rules) {}

  void add(LinkId link, const Hello& hello);
  void remove(LinkId link);
  const std::map<LinkId, Elector>& electors() const { return electors_; }
  bool somebody_knows_a_round() const { return !by_round_.empty(); }
  void clear();

  // When attempt() is due if no other event comes first; may be in the past. nullopt: too few electors for an election.
  std::optional<Time> next_attempt(const Candidate& self) const;
  // Begins an election if it is due and the electors are a majority. True: the caller must promise the term, then send
  // request_for() to all electors.
  bool attempt(const Candidate& self, Now now);
  VoteRequest request_for(const Candidate& self) const;
  void hear(LinkId link, const Vote& vote);
  // If the election is won: the new term as promised_term, and the rounds that a majority supports.
  std::optional<PersistentState> won(const Candidate& self) const;
  // Whether the inherited budget already counts the failure of the round in `base`. This happens if the last coordinator
  // counted the failure and released the next round, but too few nodes received that release.
  bool has_judged(const Candidate& self, const PersistentState& base) const;
  const std::optional<Election>& election() const { return election_; }
  // Another node has promised that term: the next election uses a later one.
  void note_term(std::uint64_t term);

  // Electors counted so far. Tests measure the work by it.
  std::int64_t counted() const { return here_.counted() + voters_.counted(); }

 private:
  const PersistentState& newest(const Candidate& self) const;
  bool known_committed(const Candidate& self, const Config& round) const;
  void know_roster(const Candidate& self, const PersistentState& base) const;
  std::optional<PersistentState> basis(const Candidate& self, Support& support) const;

  std::map<LinkId, Elector> electors_;
  std::map<RoundId, std::map<LinkId, const PersistentState*>> by_round_;  // electors by the newest round that they know
  std::map<RoundId, int> committed_;  // number of electors that know the round of that origin as committed
  mutable ReleasedRanks released_;    // ranks from the roster, if it is of one of the counted rounds
  mutable Support here_;
  mutable Support voters_;
  std::optional<Election> election_;
  std::uint64_t highest_term_ = 0;  // largest term seen
  Time not_before_{};
  int failed_ = 0;  // failed elections in a row, at most kMostDoublings
};

}  // namespace ddprun::rendezvous
