// How many nodes stand behind a candidate: one count of the round that it would inherit and of the one before. A node that
// comes or goes changes the count by one; all of them are counted again only when another round is asked about, so that ten
// thousand electors cost ten thousand steps and not a hundred million. succession.hpp has one of those who are here and one of
// those who voted. Pure.
//
// It owns who is counted, each node once: by what it said last, since an old connection may end late.
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

// The ranks of a round by its roster: a release may not have reached the node that it names.
struct ReleasedRanks {
  RoundId origin{};
  std::map<NodeId, std::int32_t> by_node{};
};

class Support {
 public:
  explicit Support(const Rules& rules) : rules_(rules) {}

  // The hello must stay where it is until the link is removed.
  void add(LinkId link, const Hello& hello);
  void remove(LinkId link, const NodeId& node);
  void clear();

  // From now on these two rounds are counted. The ranks must stay where they are.
  void count_for(const Config& current, const Config& previous, const ReleasedRanks& released);
  // A majority, with this node itself: of both rounds; or of the one before alone, so many of which have not installed the
  // newest that it can't have been committed and never can be.
  enum class Majority { kNone, kOfBoth, kOfPrevious };
  Majority with(const NodeId& self, const Standing& standing) const;

  // Nodes counted since it was made: what the work is measured by.
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
  std::int32_t rank_in(const RoundId& round, const NodeId& id, const Standing& standing) const;
  Ranks ranks_of(const NodeId& id, const Standing& standing) const;
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
  Tally may_have_it_;                       // of the one before: all but those who say that they have not installed the newest
  std::map<std::int32_t, int> without_it_;  // those, by rank, and how many say so
  std::int64_t counted_ = 0;
};

}  // namespace ddprun::rendezvous
