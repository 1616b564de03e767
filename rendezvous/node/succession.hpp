// How a node without a coordinator becomes one: the nodes that dialled it and look for a coordinator too are its electors. Once
// they are a majority of the newest round that any of them knows (quorum.hpp) and its place in line has come, it asks them for
// their votes; a majority of votes makes it the coordinator of a new term. Pure; node.hpp holds one.
//
// Asking only with a majority at hand keeps terms from growing in a corner of a broken network. The line (first the old
// coordinator or the lowest successor) only makes it likely that one asks at a time; that one wins at most follows from votes.
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
  // What this node itself brings.
  struct Candidate {
    NodeId id{};
    Standing standing{};
    std::size_t place_in_line = 0;
    Time may_stand_at{};
    nanoseconds lease{};
    const Roster* roster = nullptr;  // of the newest round that it released
  };

  explicit Succession(const Rules& rules) : here_(rules), voters_(rules) {}

  void add(LinkId link, const Hello& hello);
  void remove(LinkId link);
  const std::map<LinkId, Elector>& electors() const { return electors_; }
  bool somebody_knows_a_round() const { return !by_round_.empty(); }
  void clear();

  // When next to ask for votes, if nothing else happens; the time may have come already.
  std::optional<Time> next_attempt(const Candidate& self) const;
  // Begins an election if it is time and there are enough electors: the caller promises the term and sends `request_for` to
  // all.
  bool attempt(const Candidate& self, Now now);
  VoteRequest request_for(const Candidate& self) const;
  void hear(LinkId link, const Vote& vote);
  // What the election gives, if it was won: the term as promised_term, and the rounds that a majority stands for.
  std::optional<Standing> won(const Candidate& self) const;
  const std::optional<Election>& election() const { return election_; }
  // A term that somebody has: the next election is for a later one.
  void note_term(std::uint64_t term);

  // Electors counted since it was made: what the work is measured by.
  std::int64_t counted() const { return here_.counted() + voters_.counted(); }

 private:
  const Standing& newest(const Candidate& self) const;
  bool known_committed(const Candidate& self, const Config& round) const;
  void know_roster(const Candidate& self, const Standing& base) const;
  std::optional<Standing> basis(const Candidate& self, Support& support) const;

  std::map<LinkId, Elector> electors_;
  std::map<RoundId, std::map<LinkId, const Standing*>> by_round_;  // the newest that each knows
  std::map<RoundId, int> committed_;                               // origins that electors know to be committed: how many
  mutable ReleasedRanks released_;                                 // of the roster, while one of the rounds asked about is its
  mutable Support here_;
  mutable Support voters_;
  std::optional<Election> election_;
  std::uint64_t highest_term_ = 0;  // heard of
  Time not_before_{};
  int failed_ = 0;  // elections, one after the other
};

}  // namespace ddprun::rendezvous
