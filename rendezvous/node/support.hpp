// Counts the nodes that support a candidate: for the round that it would inherit, and for the previous one. A node that joins
// or leaves changes the counts by one. All nodes are counted again only for another round, so ten thousand electors cost ten
// thousand steps and not a hundred million. succession.hpp has one object for the connected nodes, and one for those that
// voted. Pure.
//
// This class owns which nodes are counted. Each node counts once, by its newest Hello, since an old connection may close late.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// The ranks of a round from its roster. They are needed for nodes that the release never reached.
struct ReleasedRanks {
  RoundId origin{};
  std::map<NodeId, std::int32_t> by_node{};
};

class Support {
 public:
  explicit Support(const Rules& rules) : rules_(rules) {}

  // `hello` must stay at its address until the link is removed.
  void add(LinkId link, const Hello& hello);
  void remove(LinkId link, const NodeId& node);
  void clear();

  // Counts these two rounds from now on. `released` must stay at its address.
  void count_for(const Config& current, const Config& previous, const ReleasedRanks& released);
  // A majority that includes this node, of both rounds. Or of the previous round alone, if so many of its nodes have not
  // installed the newest round that it was not committed and never can be.
  enum class Majority { kNone, kOfBoth, kOfPrevious };
  Majority with(const NodeId& self, const PersistentState& state) const;

  // Nodes counted so far. Tests use it to measure the work.
  std::int64_t counted() const { return counted_; }

 private:
  struct Voice {
    LinkId link = 0;
    const Hello* hello = nullptr;
  };
  struct Ranks {
    std::int32_t current = -1;
    std::int32_t previous = -1;
    bool without_current = false;
  };

  static const Hello* last(const std::vector<Voice>& voices);
  std::int32_t rank_in(const RoundId& round, const NodeId& id, const PersistentState& state) const;
  Ranks ranks_of(const NodeId& id, const PersistentState& state) const;
  void count(const Hello& hello);
  void uncount(const Hello& hello);

  Rules rules_;
  std::map<NodeId, std::vector<Voice>> nodes_;
  Config current_{};
  Config previous_{};
  RoundId released_origin_{};
  const ReleasedRanks* released_ = nullptr;
  Tally of_current_;
  Tally of_previous_;
  Tally may_have_it_;  // of the previous round: all nodes except those that report that they lack the newest one
  std::map<std::int32_t, int> without_it_;  // the number of nodes that report so, by rank
  std::int64_t counted_ = 0;
};

}  // namespace ddprun::rendezvous
