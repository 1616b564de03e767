#include "rendezvous/node/vote_tally.hpp"

#include <algorithm>

namespace ddprun::rendezvous {

const Hello* VoteTally::last(const std::vector<VoterLink>& entries) {
  const auto last = std::ranges::max_element(entries, {}, [](const VoterLink& entry) { return entry.hello->sequence(); });
  return last == entries.end() ? nullptr : last->hello;
}

void VoteTally::recount(const Hello* before, const Hello* now) {
  if (now == before) return;
  if (before != nullptr) uncount(*before);
  if (now != nullptr) count(*now);
}

void VoteTally::add(LinkId link, const Hello& hello) {
  std::vector<VoterLink>& entries = nodes_[hello.node];
  const Hello* const before = last(entries);
  entries.push_back({link, &hello});
  recount(before, last(entries));
}

void VoteTally::remove(LinkId link, const NodeId& node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  std::vector<VoterLink>& entries = found->second;
  const Hello* const before = last(entries);
  std::erase_if(entries, [&](const VoterLink& entry) { return entry.link == link; });
  recount(before, last(entries));
  if (entries.empty()) nodes_.erase(found);
}

void VoteTally::clear() {
  nodes_.clear();
  released_ = nullptr;
}

void VoteTally::count_for(const Config& current, const Config& previous, const ReleasedRanks& released) {
  const bool same = released_ == &released && released_origin_ == released.origin && current_.origin() == current.origin() &&
                    current_.nodes == current.nodes && previous_.origin() == previous.origin() &&
                    previous_.nodes == previous.nodes;
  if (same) return;
  current_ = current;
  previous_ = previous;
  released_ = &released;
  released_origin_ = released.origin;
  current_tally_ = Tally(current);
  previous_tally_ = rules_.both_rounds_until_committed ? Tally(previous) : Tally();
  may_have_round_ = Tally(previous);
  for (std::int32_t rank = 0; rank < previous.voters(); ++rank) may_have_round_.add(rank);
  without_round_.clear();
  for (const auto& [id, entries] : nodes_) count(*last(entries));
}

// Returns the node's rank in a round; -1 if the rank is unknown or the node is not in the round. A node reports its own ranks.
// If it did not receive the release of the round, its rank comes from the roster.
std::int32_t VoteTally::rank_in(const RoundId& round, const NodeId& id, const PersistentState& state) const {
  for (const Config& known : {state.current, state.previous}) {
    if (known.exists() && known.origin() == round) return known.rank;
  }
  if (round != released_->origin) return -1;
  const auto found = released_->by_node.find(id);
  return found == released_->by_node.end() ? -1 : found->second;
}

VoteTally::Ranks VoteTally::ranks_of(const NodeId& id, const PersistentState& state) const {
  Ranks ranks{.current = rank_in(current_.origin(), id, state)};
  if (previous_.nodes == 0) return ranks;
  ranks.previous = rank_in(previous_.origin(), id, state);
  // An arbiter never records rounds, so its Hello contains no information about the newest round.
  const bool is_arbiter = ranks.previous >= previous_.nodes;
  ranks.without_current = !is_arbiter && state.current.origin() != current_.origin();
  return ranks;
}

void VoteTally::count(const Hello& hello) {
  if (released_ == nullptr) return;  // Nothing is counted before count_for(), which counts all nodes.
  ++counted_;
  const Ranks ranks = ranks_of(hello.node, hello.state);
  current_tally_.add(ranks.current);
  previous_tally_.add(ranks.previous);
  if (ranks.without_current && without_round_[ranks.previous]++ == 0) may_have_round_.remove(ranks.previous);
}

void VoteTally::uncount(const Hello& hello) {
  if (released_ == nullptr) return;
  ++counted_;
  const Ranks ranks = ranks_of(hello.node, hello.state);
  current_tally_.remove(ranks.current);
  previous_tally_.remove(ranks.previous);
  if (!ranks.without_current || --without_round_[ranks.previous] > 0) return;
  without_round_.erase(ranks.previous);
  may_have_round_.add(ranks.previous);
}

VoteTally::Majority VoteTally::with(const NodeId& self, const PersistentState& state) const {
  const Ranks ranks = ranks_of(self, state);
  Tally current_tally = current_tally_;
  Tally previous_tally = previous_tally_;
  Tally may_have_round = may_have_round_;
  current_tally.add(ranks.current);
  previous_tally.add(ranks.previous);
  if (ranks.without_current && !without_round_.contains(ranks.previous)) may_have_round.remove(ranks.previous);
  if (current_tally.enough(rules_) && previous_tally.enough(rules_)) return Majority::kBoth;
  if (!previous_tally.enough(rules_) || may_have_round.enough(rules_)) return Majority::kNone;
  return Majority::kPreviousOnly;
}

}  // namespace ddprun::rendezvous
