// Holds elections, as in Raft with PreVote: a node that has lost its coordinator becomes the coordinator of a new term. Node
// (node.hpp) uses this class. The code is pure: no I/O, no clock.
//
// The problem. The coordinator is lost, and exactly one of the other nodes must replace it. Four things can go wrong:
//   - Two nodes win, and two sets of workers train at the same time.
//   - A node in an isolated part of the network requests votes for one term after another. Its high term then deposes a healthy
//     coordinator.
//   - The winner has not recorded the newest round, and gives the ranks of that round to other nodes.
//   - The lost coordinator was just changing the membership, so the nodes disagree on how many votes are a majority.
//
// The idea. A node that has lost its coordinator dials the old coordinator and the successors in the last release. Its Hello
// contains its promised term and its rounds. A node that receives such a Hello counts the sender as an elector. It becomes a
// candidate and requests votes only when it and its electors are a majority of the newest round that any of them has recorded
// (quorum.hpp). This rule replaces the PreVote message of Raft: in an isolated part of the network, terms do not grow. A node
// votes once in each term, and not before 1.25 leases after its coordinator's last message (voter.hpp). A candidate with a
// majority of votes wins.
//
// Example: node A leads a round of three nodes. The lease is 5 s, and nodes B and C received the last message of A at 10.0 s.
// Then the machine of A loses power. B and C dial each other, so each has one elector. Two nodes are a majority of three. At
// 16.25 s both may vote. B is the first successor and requests votes at 16.45 s; C would do so at 16.65 s. C votes for B in
// term 2, and is not a candidate itself for 0.4 leases. The different waiting times only make two candidates unlikely. The
// votes make two winners impossible.
//
// The difference from Raft. A Raft server refuses its vote to a candidate with an older log. Here the candidate inherits the
// newest round of its electors. An elector's Hello arrives over the same link as its vote, and before the vote. So a candidate
// never has an older round than its voters. If the newest round is uncommitted, a candidate needs majorities of that round and
// of the previous round. If too few nodes have the newest round, it can never be committed. In this case, the candidate
// inherits the previous round.
//
// Three kinds of electors have no connection: the arbiter of a two-node round (arbitration.hpp), a coordinator that has died,
// and a coordinator that has transferred its leadership (departed_voters.hpp).
//
// Alternatives tried.
//   1. On slow networks, votes arrived after the candidate had given up the election, and terms grew beyond 100. Now each
//      failed election doubles the time that a candidate waits for votes.
//   2. Nodes with slow links started another election in a later term after each victory. Now a node that has voted waits
//      before it becomes a candidate.
//   3. A count of all electors at each event took a hundred million steps for ten thousand nodes. Now vote_tally.hpp updates
//      the counts.
//   4. Nodes reported the address of the node with the newest round to other nodes. This had no effect in 30,000 simulated
//      runs, so it was removed.
//
// The cost. Without a death notice or a leadership transfer, no election starts before 1.25 leases of silence. If the
// coordinator and all four successors are lost at the same time, no node can be elected. The remaining nodes then end with exit
// code 86.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "rendezvous/node/vote_tally.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

class LeaderElection {
 public:
  struct KnownVoter {
    Hello hello;
    std::optional<Vote> vote;
  };
  struct Election {
    std::uint64_t term = 0;
    Time started_at{};
  };
  // The data of this node on which its candidacy depends.
  struct Candidate {
    NodeId id{};
    PersistentState state{};
    // position in the list of candidates; 0: the last coordinator; 1 to kSuccessors: its successors
    std::size_t candidate_rank = 0;
    Time may_campaign_at{};
    nanoseconds lease{};
    const Roster* roster = nullptr;  // the nodes of the newest round that this node released when it was the coordinator
  };

  explicit LeaderElection(const Rules& rules) : connected_(rules), granted_(rules) {}

  void add(LinkId link, const Hello& hello);
  void remove(LinkId link);
  const std::map<LinkId, KnownVoter>& known_voters() const { return known_voters_; }
  bool any_knows_round() const { return !by_round_.empty(); }
  void clear();

  // Returns the time at which attempt() must be called if no event arrives earlier; it may be in the past. Returns nullopt if
  // the connected voters are not a majority.
  std::optional<Time> next_attempt(const Candidate& self) const;
  // Starts an election if its time has come and the connected voters are a majority. If it returns true, the caller must
  // promise (record) the term, and then send request_for() to all connected voters.
  bool attempt(const Candidate& self, Now now);
  VoteRequest request_for(const Candidate& self) const;
  void receive(LinkId link, const Vote& vote);
  // If this node has won the election, returns the state that the new coordinator inherits, with the new term as
  // promised_term. If not, returns nullopt.
  std::optional<PersistentState> won(const Candidate& self) const;
  // Returns true if the restart budget in `base` already includes the failure that ended its round. This happens if the last
  // coordinator counted the failure and released the next round, but too few nodes received that release.
  bool has_judged(const Candidate& self, const PersistentState& base) const;
  const std::optional<Election>& election() const { return election_; }
  // Call this when another node has promised that term, so that the next election uses a later term.
  void note_term(std::uint64_t term);

  // Returns the total number of voter visits in all counts so far. Tests use it to measure the work.
  std::int64_t counted() const { return connected_.counted() + granted_.counted(); }

 private:
  const PersistentState& newest(const Candidate& self) const;
  bool known_committed(const Candidate& self, const Config& round) const;
  void use_roster(const Candidate& self, const PersistentState& base) const;
  std::optional<PersistentState> basis(const Candidate& self, VoteTally& support) const;

  std::map<LinkId, KnownVoter> known_voters_;
  // connected voters, grouped by the newest round that they have recorded
  std::map<RoundId, std::map<LinkId, const PersistentState*>> by_round_;
  // maps the origin() of a round to the number of connected voters that have recorded the round as committed
  std::map<RoundId, int> committed_;
  // ranks from this node's roster, if the roster belongs to one of the two rounds whose votes are counted
  mutable ReleasedRanks released_;
  mutable VoteTally connected_;
  mutable VoteTally granted_;
  std::optional<Election> election_;
  std::uint64_t highest_term_ = 0;  // the largest term that any node has promised or reported
  Time not_before_{};
  int failed_ = 0;  // number of consecutive failed elections, at most kMaxDoublings
};

}  // namespace ddprun::rendezvous
