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

  explicit Succession(Rules rules) : rules_(rules) {}

  void add(LinkId link, const Hello& hello) { electors_.insert_or_assign(link, Elector{hello, std::nullopt}); }
  void remove(LinkId link) { electors_.erase(link); }
  const std::map<LinkId, Elector>& electors() const { return electors_; }
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

 private:
  const Standing& newest(const Candidate& self) const;
  bool known_committed(const Candidate& self, const Config& round) const;
  std::optional<Standing> basis(const Candidate& self, bool voters_only) const;

  Rules rules_;
  std::map<LinkId, Elector> electors_;
  std::optional<Election> election_;
  std::uint64_t highest_term_ = 0;  // heard of
  Time not_before_{};
  int failed_ = 0;  // elections, one after the other
};

}  // namespace ddprun::rendezvous
