// Implementation of succession.hpp.
#include "rendezvous/succession.hpp"

#include <algorithm>
#include <set>

#include "rendezvous/quorum.hpp"

namespace ddprun::rendezvous {

void Succession::clear() {
  electors_.clear();
  election_.reset();
}

const Standing& Succession::newest(const Candidate& self) const {
  const Standing* newest = &self.standing;
  for (const auto& [link, elector] : electors_) {
    const Standing& standing = elector.hello.standing;
    if (standing.current.exists() && standing.current.id > newest->current.id) newest = &standing;
  }
  return *newest;
}

// The rounds that a majority stands for: of the newest one and, until that is committed, of the one before. Or, when so many of
// the one before have not installed the newest that it can't have been committed, and now never can be: the one before alone.
std::optional<Standing> Succession::basis(const Candidate& self, bool voters_only) const {
  Standing base = newest(self);
  if (!base.current.exists()) return std::nullopt;
  const std::int32_t nodes_before = base.previous.nodes;
  Tally of_current(base.current.nodes);
  Tally of_previous(rules_.both_rounds_until_committed ? nodes_before : 0);
  Tally have_it(nodes_before);  // of the one before: all but those who say that they don't
  std::set<std::int32_t> without_it;
  std::set<NodeId> counted;  // each node once, whatever it dialled
  const auto count = [&](const NodeId& id, const Standing& standing) {
    if (!counted.insert(id).second) return;
    for (const Config& known : {standing.current, standing.previous}) {
      if (!known.exists()) continue;
      if (known.id == base.current.id) of_current.add(known.rank);
      if (known.id == base.previous.id) {
        of_previous.add(known.rank);
        if (standing.current.id < base.current.id) without_it.insert(known.rank);
      }
    }
  };
  count(self.id, self.standing);
  for (const auto& [link, elector] : electors_) {
    if (!voters_only || elector.vote) count(elector.hello.node, elector.hello.standing);
  }
  if (of_current.enough(rules_) && of_previous.enough(rules_)) return base;
  if (nodes_before == 0 || without_it.empty() || !of_previous.enough(rules_)) return std::nullopt;
  for (std::int32_t rank = 0; rank < nodes_before; ++rank) {
    if (!without_it.contains(rank)) have_it.add(rank);
  }
  if (have_it.enough(rules_)) return std::nullopt;
  base.current = base.previous;
  base.previous = Config{};
  return base;
}

std::optional<Time> Succession::next_attempt(const Candidate& self) const {
  if (election_) return election_->asked + self.lease / 5;
  if (!basis(self, /*voters_only=*/false)) return std::nullopt;
  const nanoseconds turn = self.lease / 25 * static_cast<std::int64_t>(self.place_in_line);
  return std::max(self.may_vote_at + turn, not_before_);
}

bool Succession::attempt(const Candidate& self, Now now) {
  const std::optional<Time> due = next_attempt(self);
  if (!due || *due > now.steady) return false;
  if (election_) {  // not enough votes came: some time for others, more for those further back in the line
    not_before_ =
        now.steady + self.lease / 25 * static_cast<std::int64_t>(1 + 2 * self.place_in_line) + self.lease / 5000 * self.id[1];
    election_.reset();
    return false;
  }
  std::uint64_t term = std::max(highest_term_, self.standing.promised_term);
  for (auto& [link, elector] : electors_) {
    term = std::max(term, elector.hello.standing.promised_term);
    elector.vote.reset();
  }
  election_ = Election{.term = term + 1, .asked = now.steady};
  return true;
}

VoteRequest Succession::request_for(const Candidate& self) const {
  return {
      .term = election_->term, .candidate = self.id, .installed = newest(self).current.id, .stamp = stamp_of(election_->asked)};
}

void Succession::hear(LinkId link, const Vote& vote) {
  const auto found = electors_.find(link);
  if (found == electors_.end()) return;
  constexpr std::uint64_t kLargestTerm = std::uint64_t{1} << 62;
  if (vote.promised_term < kLargestTerm) highest_term_ = std::max(highest_term_, vote.promised_term);
  if (election_ && vote.given() && vote.term == election_->term) found->second.vote = vote;
}

std::optional<Standing> Succession::won(const Candidate& self) const {
  if (!election_) return std::nullopt;
  std::optional<Standing> base = basis(self, /*voters_only=*/true);
  if (base) base->promised_term = election_->term;
  return base;
}

}  // namespace ddprun::rendezvous
