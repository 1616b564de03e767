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

const Standing* Succession::newer_than(const Standing& own) const {
  const Standing* newest = nullptr;
  for (const auto& [link, elector] : electors_) {
    const Standing& standing = elector.hello.standing;
    if (!standing.current.exists() || standing.current.id <= own.current.id) continue;
    if (newest == nullptr || standing.current.id > newest->current.id) newest = &standing;
  }
  return newest;
}

// Counts each node once, whatever it dialled.
bool Succession::enough(const Candidate& self, bool voters_only) const {
  const Config& current = self.standing.current;
  const Config& previous = self.standing.previous;
  Tally of_current(current.nodes);
  Tally of_previous(rules_.both_rounds_until_committed ? previous.nodes : 0);
  of_current.add(current.rank);
  of_previous.add(previous.rank);
  std::set<NodeId> counted{self.id};
  for (const auto& [link, elector] : electors_) {
    if (voters_only && !elector.vote) continue;
    if (!counted.insert(elector.hello.node).second) continue;
    for (const Config& known : {elector.hello.standing.current, elector.hello.standing.previous}) {
      if (!known.exists()) continue;
      if (known.id == current.id) of_current.add(known.rank);
      if (known.id == previous.id) of_previous.add(known.rank);
    }
  }
  return of_current.enough(rules_) && of_previous.enough(rules_);
}

std::optional<Time> Succession::next_attempt(const Candidate& self) const {
  if (!self.standing.current.exists()) return std::nullopt;
  if (election_) return election_->asked + self.lease / 5;
  if (!enough(self, /*voters_only=*/false)) return std::nullopt;
  const nanoseconds turn = self.lease / 25 * static_cast<std::int64_t>(self.place_in_line);
  return std::max(self.may_vote_at + turn, not_before_);
}

bool Succession::attempt(const Candidate& self, Now now) {
  const std::optional<Time> due = next_attempt(self);
  if (!due || *due > now.steady) return false;
  if (election_) {  // not enough votes came: some time for others, more for those further back in the line
    not_before_ = now.steady + self.lease / 25 * static_cast<std::int64_t>(1 + 2 * self.place_in_line);
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
  return {.term = election_->term,
          .candidate = self.id,
          .installed = self.standing.current.id,
          .stamp = stamp_of(election_->asked)};
}

void Succession::hear(LinkId link, const Vote& vote) {
  const auto found = electors_.find(link);
  if (found == electors_.end()) return;
  constexpr std::uint64_t kLargestTerm = std::uint64_t{1} << 62;
  if (vote.promised_term < kLargestTerm) highest_term_ = std::max(highest_term_, vote.promised_term);
  if (election_ && vote.given() && vote.term == election_->term) found->second.vote = vote;
}

std::optional<Succession::Election> Succession::won(const Candidate& self) const {
  return election_ && enough(self, /*voters_only=*/true) ? election_ : std::nullopt;
}

}  // namespace ddprun::rendezvous
