// Implementation of succession.hpp.
#include "rendezvous/node/succession.hpp"

#include <algorithm>
#include <set>

namespace ddprun::rendezvous {
namespace {

// Votes may take longer to come than the first try waits: each one waits twice as long, up to 0.8 leases.
constexpr int kMostDoublings = 2;

}  // namespace

void Succession::clear() {
  electors_.clear();
  election_.reset();
  failed_ = 0;
}

const Standing& Succession::newest(const Candidate& self) const {
  const Standing* newest = &self.standing;
  for (const auto& [link, elector] : electors_) {
    const Standing& standing = elector.hello.standing;
    if (standing.current.exists() && standing.current.id > newest->current.id) newest = &standing;
  }
  return *newest;
}

// Whether somebody here was told that this membership is committed: the one before it counts no more, then.
bool Succession::known_committed(const Candidate& self, const Config& round) const {
  const auto knows = [&](const Standing& standing) {
    return standing.current.origin() == round.origin() && !standing.previous.exists();
  };
  return knows(self.standing) ||
         std::any_of(electors_.begin(), electors_.end(), [&](const auto& entry) { return knows(entry.second.hello.standing); });
}

// The rounds that a majority stands for: of the newest one and, until that is committed, of the one before. Or, when so many of
// the one before have not installed the newest that it can't have been committed, and now never can be: the one before alone.
// A node says its ranks itself; of a round that never reached it, the one who released that round knows its rank.
std::optional<Standing> Succession::basis(const Candidate& self, bool voters_only) const {
  Standing base = newest(self);
  if (!base.current.exists()) return std::nullopt;
  if (known_committed(self, base.current)) base.previous = Config{};
  const std::int32_t nodes_before = base.previous.nodes;
  const RoundId current = base.current.origin();
  const RoundId previous = base.previous.origin();
  Tally of_current(base.current.nodes);
  Tally of_previous(rules_.both_rounds_until_committed ? nodes_before : 0);
  Tally have_it(nodes_before);  // of the one before: all but those who say that they don't
  std::set<std::int32_t> without_it;
  std::map<NodeId, std::int32_t> released;
  const RoundId roster = self.roster != nullptr ? self.roster->origin : RoundId{};
  if (roster == current || (base.previous.exists() && roster == previous)) {
    for (std::size_t rank = 0; rank < self.roster->nodes.size(); ++rank) {
      released.emplace(self.roster->nodes[rank], static_cast<std::int32_t>(rank));
    }
  }
  const auto rank_in = [&](const RoundId& round, const NodeId& id, const Standing& standing) {
    for (const Config& known : {standing.current, standing.previous}) {
      if (known.exists() && known.origin() == round) return known.rank;
    }
    const auto found = round == roster ? released.find(id) : released.end();
    return found == released.end() ? -1 : found->second;
  };
  const auto count = [&](const NodeId& id, const Standing& standing) {
    of_current.add(rank_in(current, id, standing));
    if (nodes_before == 0) return;
    const std::int32_t before = rank_in(previous, id, standing);
    of_previous.add(before);
    if (before >= 0 && standing.current.origin() != current) without_it.insert(before);
  };
  count(self.id, self.standing);
  std::map<NodeId, const Hello*> hellos;  // each node once, by what it said last: an old connection may end late
  for (const auto& [link, elector] : electors_) {
    if (voters_only && !elector.vote) continue;
    const Hello*& last = hellos[elector.hello.node];
    if (last == nullptr || last->said() < elector.hello.said()) last = &elector.hello;
  }
  for (const auto& [id, hello] : hellos) count(id, hello->standing);
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

void Succession::note_term(std::uint64_t term) {
  constexpr std::uint64_t kLargestTerm = std::uint64_t{1} << 62;
  if (term < kLargestTerm) highest_term_ = std::max(highest_term_, term);
}

std::optional<Time> Succession::next_attempt(const Candidate& self) const {
  if (election_) return election_->asked + self.lease / 5 * (1 << failed_);
  if (!basis(self, /*voters_only=*/false)) return std::nullopt;
  const nanoseconds turn = self.lease / 25 * static_cast<std::int64_t>(self.place_in_line);
  return std::max(self.may_stand_at + turn, not_before_);
}

bool Succession::attempt(const Candidate& self, Now now) {
  const std::optional<Time> due = next_attempt(self);
  if (!due || *due > now.steady) return false;
  if (election_) {  // not enough votes came: some time for others, more for those further back in the line
    const nanoseconds turns = self.lease / 25 * static_cast<std::int64_t>(1 + 2 * self.place_in_line);
    not_before_ = now.steady + (turns + self.lease / 5000 * self.id[1]) * (1 << failed_);
    failed_ = std::min(failed_ + 1, kMostDoublings);
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
  return {.term = election_->term, .candidate = self.id, .stamp = stamp_of(election_->asked)};
}

void Succession::hear(LinkId link, const Vote& vote) {
  const auto found = electors_.find(link);
  if (found == electors_.end()) return;
  note_term(vote.promised_term);
  if (election_ && vote.given() && vote.term == election_->term) found->second.vote = vote;
}

std::optional<Standing> Succession::won(const Candidate& self) const {
  if (!election_ || self.standing.promised_term != election_->term) return std::nullopt;  // it has voted for a later one since
  std::optional<Standing> base = basis(self, /*voters_only=*/true);
  if (base) base->promised_term = election_->term;
  return base;
}

}  // namespace ddprun::rendezvous
