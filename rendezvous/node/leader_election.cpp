#include "rendezvous/node/leader_election.hpp"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

// An election first waits for votes for a fifth of the lease. Each failed election doubles this time, up to 0.8 leases,
// because the network may be slow.
constexpr int kMaxDoublings = 2;

}  // namespace

void LeaderElection::add(LinkId link, const Hello& hello) {
  remove(link);
  const Hello& stored = known_voters_.emplace(link, KnownVoter{hello, std::nullopt}).first->second.hello;
  const Config& current = stored.state.current;
  if (current.exists()) by_round_[current.id].emplace(link, &stored.state);
  if (!stored.state.previous.exists()) ++committed_[current.origin()];
  connected_.add(link, stored);
}

void LeaderElection::remove(LinkId link) {
  const auto found = known_voters_.find(link);
  if (found == known_voters_.end()) return;
  const Hello& hello = found->second.hello;
  const Config& current = hello.state.current;
  connected_.remove(link, hello.node);
  granted_.remove(link, hello.node);
  if (const auto round = by_round_.find(current.id); round != by_round_.end()) {
    round->second.erase(link);
    if (round->second.empty()) by_round_.erase(round);
  }
  if (!hello.state.previous.exists() && --committed_[current.origin()] == 0) committed_.erase(current.origin());
  known_voters_.erase(found);
}

void LeaderElection::clear() {
  connected_.clear();
  granted_.clear();
  by_round_.clear();
  committed_.clear();
  known_voters_.clear();
  election_.reset();
  failed_ = 0;
}

const PersistentState& LeaderElection::newest(const Candidate& self) const {
  if (by_round_.empty() || by_round_.rbegin()->first <= self.state.current.id) return self.state;
  return *by_round_.rbegin()->second.begin()->second;
}

// Returns true if this node or a connected voter has recorded that the round is committed. In this case, no majority of the
// previous round is needed.
bool LeaderElection::known_committed(const Candidate& self, const Config& round) const {
  const bool self_knows = self.state.current.origin() == round.origin() && !self.state.previous.exists();
  return self_knows || committed_.contains(round.origin());
}

void LeaderElection::use_roster(const Candidate& self, const PersistentState& base) const {
  const RoundId roster = self.roster != nullptr ? self.roster->origin : RoundId{};
  const bool roster_applies = roster == base.current.origin() || (base.previous.exists() && roster == base.previous.origin());
  const RoundId origin = roster_applies ? roster : RoundId{};
  if (released_.origin == origin) return;
  released_ = {.origin = origin, .by_node = {}};
  if (!roster_applies) return;
  for (std::size_t rank = 0; rank < self.roster->nodes.size(); ++rank) {
    released_.by_node.emplace(self.roster->nodes[rank], static_cast<std::int32_t>(rank));
  }
}

// Returns the rounds that a new coordinator inherits if the nodes in `support` vote for it; nullopt if these nodes are not a
// majority. They must be a majority of the newest round and, until that round is committed, also of the previous round. If too
// few nodes have the newest round, it can never be committed. In this case, a majority of the previous round is enough.
std::optional<PersistentState> LeaderElection::basis(const Candidate& self, VoteTally& support) const {
  PersistentState base = newest(self);
  if (!base.current.exists()) return std::nullopt;
  if (known_committed(self, base.current)) base.previous = Config{};
  use_roster(self, base);
  support.count_for(base.current, base.previous, released_);
  switch (support.with(self.id, self.state)) {
    case VoteTally::Majority::kNone:
      return std::nullopt;
    case VoteTally::Majority::kBoth:
      return base;
    case VoteTally::Majority::kPreviousOnly:
      base.current = base.previous;
      base.previous = Config{};
      return base;
  }
  return std::nullopt;
}

void LeaderElection::note_term(std::uint64_t term) {
  constexpr std::uint64_t kLargestTerm = std::uint64_t{1} << 62;
  if (term < kLargestTerm) highest_term_ = std::max(highest_term_, term);
}

std::optional<Time> LeaderElection::next_attempt(const Candidate& self) const {
  if (election_) return election_->started_at + self.lease / 5 * (1 << failed_);
  if (!basis(self, connected_)) return std::nullopt;
  const nanoseconds turn = self.lease / 25 * static_cast<std::int64_t>(self.candidate_rank);
  return std::max(self.may_campaign_at + turn, not_before_);
}

bool LeaderElection::attempt(const Candidate& self, Now now) {
  const std::optional<Time> due = next_attempt(self);
  if (!due || *due > now.steady) return false;
  if (election_) {  // The election has failed. Successors later in the list wait longer before they try again.
    const nanoseconds turns = self.lease / 25 * static_cast<std::int64_t>(1 + 2 * self.candidate_rank);
    not_before_ = now.steady + (turns + self.lease / 5000 * self.id[1]) * (1 << failed_);
    failed_ = std::min(failed_ + 1, kMaxDoublings);
    election_.reset();
    return false;
  }
  std::uint64_t term = std::max(highest_term_, self.state.promised_term);
  for (auto& [link, voter] : known_voters_) {
    term = std::max(term, voter.hello.state.promised_term);
    voter.vote.reset();
  }
  granted_.clear();
  election_ = Election{.term = term + 1, .started_at = now.steady};
  return true;
}

VoteRequest LeaderElection::request_for(const Candidate& self) const {
  return {.term = election_->term, .candidate = self.id, .stamp = stamp_of(election_->started_at)};
}

void LeaderElection::receive(LinkId link, const Vote& vote) {
  const auto found = known_voters_.find(link);
  if (found == known_voters_.end()) return;
  note_term(vote.promised_term);
  if (!election_ || !vote.granted() || vote.term != election_->term) return;
  if (!found->second.vote) granted_.add(link, found->second.hello);
  found->second.vote = vote;
}

std::optional<PersistentState> LeaderElection::won(const Candidate& self) const {
  // The election is lost if this node has promised a later term since it started.
  if (!election_ || self.state.promised_term != election_->term) return std::nullopt;
  std::optional<PersistentState> base = basis(self, granted_);
  if (base) base->promised_term = election_->term;
  return base;
}

bool LeaderElection::has_judged(const Candidate& self, const PersistentState& base) const {
  const auto counted_less = [&base](const PersistentState& state) {
    return state.current.origin() == base.current.origin() && state.budget.restart_count < base.budget.restart_count;
  };
  return counted_less(self.state) || std::any_of(by_round_.begin(), by_round_.end(), [&](const auto& round) {
           return counted_less(*round.second.begin()->second);
         });
}

}  // namespace ddprun::rendezvous
