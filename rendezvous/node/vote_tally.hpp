// Counts the nodes that support a candidate, both in the round that the candidate would inherit and in the previous round. A
// node that connects or leaves changes the counts by one. All nodes are counted again only if one of these rounds changes. So
// ten thousand voters cost ten thousand steps and not a hundred million. leader_election.hpp has one VoteTally for the
// connected nodes, and another for the nodes that have voted. The code is pure: no I/O, no clock.
//
// This class stores which nodes are counted. A node may have two links, because an old connection may close late. Each node
// counts once, with its newest Hello.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// The ranks of a round, taken from its roster. They replace the ranks of nodes that did not receive the release of the round.
struct ReleasedRanks {
  RoundId origin{};
  std::map<NodeId, std::int32_t> by_node{};
};

class VoteTally {
 public:
  explicit VoteTally(const Rules& rules) : rules_(rules) {}

  // Adds a node that can vote. `hello` must stay valid until the link is removed.
  void add(LinkId link, const Hello& hello);
  void remove(LinkId link, const NodeId& node);
  void clear();

  // Counts the nodes in these two rounds from now on. `released` must stay valid.
  void count_for(const Config& current, const Config& previous, const ReleasedRanks& released);
  // Whether the counted nodes and this node together are a majority. kBoth: they are a majority of both rounds. kPreviousOnly:
  // they are a majority of the previous round only, and the newest round can never be committed, because too few nodes of the
  // previous round have it.
  enum class Majority { kNone, kBoth, kPreviousOnly };
  Majority with(const NodeId& self, const PersistentState& state) const;

  // Returns the total number of node visits in all counts so far. Tests use it to measure the work.
  std::int64_t counted() const { return counted_; }

 private:
  struct VoterLink {
    LinkId link = 0;
    const Hello* hello = nullptr;
  };
  struct Ranks {
    std::int32_t current = -1;
    std::int32_t previous = -1;
    bool without_current = false;
  };

  static const Hello* last(const std::vector<VoterLink>& entries);
  std::int32_t rank_in(const RoundId& round, const NodeId& id, const PersistentState& state) const;
  Ranks ranks_of(const NodeId& id, const PersistentState& state) const;
  void recount(const Hello* before, const Hello* now);
  void count(const Hello& hello);
  void uncount(const Hello& hello);

  Rules rules_;
  std::map<NodeId, std::vector<VoterLink>> nodes_;
  Config current_{};
  Config previous_{};
  RoundId released_origin_{};
  const ReleasedRanks* released_ = nullptr;
  Tally current_tally_;
  Tally previous_tally_;
  // nodes of the previous round, except those whose Hello shows that they do not have the newest round
  Tally may_have_round_;
  // for each rank in the previous round, the number of nodes whose Hello shows that they do not have the newest round
  std::map<std::int32_t, int> without_round_;
  std::int64_t counted_ = 0;
};

}  // namespace ddprun::rendezvous
