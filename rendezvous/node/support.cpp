// Implementation of support.hpp.
#include "rendezvous/node/support.hpp"

#include <algorithm>

namespace ddprun::rendezvous {

const Hello* Support::last(const std::vector<Voice>& voices) {
  const Hello* last = nullptr;
  for (const Voice& voice : voices) {
    if (last == nullptr || last->said() < voice.hello->said()) last = voice.hello;
  }
  return last;
}

void Support::add(LinkId link, const Hello& hello) {
  std::vector<Voice>& voices = nodes_[hello.node];
  const Hello* const before = last(voices);
  voices.push_back({link, &hello});
  const Hello* const now = last(voices);
  if (now == before) return;
  if (before != nullptr) uncount(*before);
  count(*now);
}

void Support::remove(LinkId link, const NodeId& node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  std::vector<Voice>& voices = found->second;
  const Hello* const before = last(voices);
  std::erase_if(voices, [&](const Voice& voice) { return voice.link == link; });
  const Hello* const now = last(voices);
  if (now != before) {
    uncount(*before);
    if (now != nullptr) count(*now);
  }
  if (voices.empty()) nodes_.erase(found);
}

void Support::clear() {
  nodes_.clear();
  released_ = nullptr;
}

void Support::count_for(const Config& current, const Config& previous, const ReleasedRanks& released) {
  const bool same = released_ == &released && released_origin_ == released.origin && current_.origin() == current.origin() &&
                    current_.nodes == current.nodes && previous_.origin() == previous.origin() &&
                    previous_.nodes == previous.nodes;
  if (same) return;
  current_ = current;
  previous_ = previous;
  released_ = &released;
  released_origin_ = released.origin;
  of_current_ = Tally(current);
  of_previous_ = rules_.both_rounds_until_committed ? Tally(previous) : Tally();
  may_have_it_ = Tally(previous);
  for (std::int32_t rank = 0; rank < previous.voters(); ++rank) may_have_it_.add(rank);
  without_it_.clear();
  for (const auto& [id, voices] : nodes_) count(*last(voices));
}

// A node knows its own ranks. If a round never reached the node, only the coordinator that released the round knows its rank.
std::int32_t Support::rank_in(const RoundId& round, const NodeId& id, const PersistentState& state) const {
  for (const Config& known : {state.current, state.previous}) {
    if (known.exists() && known.origin() == round) return known.rank;
  }
  if (round != released_->origin) return -1;
  const auto found = released_->by_node.find(id);
  return found == released_->by_node.end() ? -1 : found->second;
}

Support::Ranks Support::ranks_of(const NodeId& id, const PersistentState& state) const {
  Ranks ranks{.current = rank_in(current_.origin(), id, state)};
  if (previous_.nodes == 0) return ranks;
  ranks.previous = rank_in(previous_.origin(), id, state);
  const bool is_arbiter = ranks.previous >= previous_.nodes;  // an arbiter does not install rounds
  ranks.without_current = !is_arbiter && state.current.origin() != current_.origin();
  return ranks;
}

void Support::count(const Hello& hello) {
  if (released_ == nullptr) return;  // count_for() was not called yet
  ++counted_;
  const Ranks ranks = ranks_of(hello.node, hello.state);
  of_current_.add(ranks.current);
  of_previous_.add(ranks.previous);
  if (ranks.without_current && without_it_[ranks.previous]++ == 0) may_have_it_.remove(ranks.previous);
}

void Support::uncount(const Hello& hello) {
  if (released_ == nullptr) return;
  ++counted_;
  const Ranks ranks = ranks_of(hello.node, hello.state);
  of_current_.remove(ranks.current);
  of_previous_.remove(ranks.previous);
  if (!ranks.without_current || --without_it_[ranks.previous] > 0) return;
  without_it_.erase(ranks.previous);
  may_have_it_.add(ranks.previous);
}

Support::Majority Support::with(const NodeId& self, const PersistentState& state) const {
  const Ranks ranks = ranks_of(self, state);
  Tally of_current = of_current_;
  Tally of_previous = of_previous_;
  Tally may_have_it = may_have_it_;
  of_current.add(ranks.current);
  of_previous.add(ranks.previous);
  if (ranks.without_current && !without_it_.contains(ranks.previous)) may_have_it.remove(ranks.previous);
  if (of_current.enough(rules_) && of_previous.enough(rules_)) return Majority::kOfBoth;
  if (!of_previous.enough(rules_) || may_have_it.enough(rules_)) return Majority::kNone;
  return Majority::kOfPrevious;
}

}  // namespace ddprun::rendezvous
