// Implementation of succession.hpp.
#include "rendezvous/node/succession.hpp"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

// Votes may arrive later than the first election waits. Each further election waits twice as long, up to 0.8 leases.
constexpr int kMostDoublings = 2;

}  // namespace

void Succession::add(LinkId link, const Hello& hello) {
  remove(link);
  const Hello& kept = electors_.emplace(link, Elector{hello, std::nullopt}).first->second.hello;
  const Config& current = kept.state.current;
  if (current.exists()) by_round_[current.id].emplace(link, &kept.state);
  if (!kept.state.previous.exists()) ++committed_[current.origin()];
  here_.add(link, kept);
}

void Succession::remove(LinkId link) {
  const auto found = electors_.find(link);
  if (found == electors_.end()) return;
  const Hello& hello = found->second.hello;
  const Config& current = hello.state.current;
  here_.remove(link, hello.node);
  voters_.remove(link, hello.node);
  if (const auto round = by_round_.find(current.id); round != by_round_.end()) {
    round->second.erase(link);
    if (round->second.empty()) by_round_.erase(round);
  }
  if (!hello.state.previous.exists() && --committed_[current.origin()] == 0) committed_.erase(current.origin());
  electors_.erase(found);
}

void Succession::clear() {
  here_.clear();
  voters_.clear();
  by_round_.clear();
  committed_.clear();
  electors_.clear();
  election_.reset();
  failed_ = 0;
}

const PersistentState& Succession::newest(const Candidate& self) const {
  if (by_round_.empty() || by_round_.rbegin()->first <= self.state.current.id) return self.state;
  return *by_round_.rbegin()->second.begin()->second;
}

// True if an elector knows that this membership is committed. Then the previous one no longer counts.
bool Succession::known_committed(const Candidate& self, const Config& round) const {
  const bool self_knows = self.state.current.origin() == round.origin() && !self.state.previous.exists();
  return self_knows || committed_.contains(round.origin());
}

void Succession::know_roster(const Candidate& self, const PersistentState& base) const {
  const RoundId roster = self.roster != nullptr ? self.roster->origin : RoundId{};
  const bool asked_about = roster == base.current.origin() || (base.previous.exists() && roster == base.previous.origin());
  const RoundId origin = asked_about ? roster : RoundId{};
  if (released_.origin == origin) return;
  released_ = {.origin = origin, .by_node = {}};
  if (!asked_about) return;
  for (std::size_t rank = 0; rank < self.roster->nodes.size(); ++rank) {
    released_.by_node.emplace(self.roster->nodes[rank], static_cast<std::int32_t>(rank));
  }
}

// The rounds that a majority supports. It needs a majority of the newest round and, until that is committed, of the previous
// one. The previous round alone suffices if so many of its nodes lack the newest round that it was not committed, and never can
// be.
std::optional<PersistentState> Succession::basis(const Candidate& self, Support& support) const {
  PersistentState base = newest(self);
  if (!base.current.exists()) return std::nullopt;
  if (known_committed(self, base.current)) base.previous = Config{};
  know_roster(self, base);
  support.count_for(base.current, base.previous, released_);
  switch (support.with(self.id, self.state)) {
    case Support::Majority::kNone:
      return std::nullopt;
    case Support::Majority::kOfBoth:
      return base;
    case Support::Majority::kOfPrevious:
      base.current = base.previous;
      base.previous = Config{};
      return base;
  }
  return std::nullopt;
}

void Succession::note_term(std::uint64_t term) {
  constexpr std::uint64_t kLargestTerm = std::uint64_t{1} << 62;
  if (term < kLargestTerm) highest_term_ = std::max(highest_term_, term);
}

std::optional<Time> Succession::next_attempt(const Candidate& self) const {
  if (election_) return election_->asked + self.lease / 5 * (1 << failed_);
  if (!basis(self, here_)) return std::nullopt;
  const nanoseconds turn = self.lease / 25 * static_cast<std::int64_t>(self.place_in_line);
  return std::max(self.may_stand_at + turn, not_before_);
}

bool Succession::attempt(const Candidate& self, Now now) {
  const std::optional<Time> due = next_attempt(self);
  if (!due || *due > now.steady) return false;
  if (election_) {  // the election failed; nodes further back in line wait longer
    const nanoseconds turns = self.lease / 25 * static_cast<std::int64_t>(1 + 2 * self.place_in_line);
    not_before_ = now.steady + (turns + self.lease / 5000 * self.id[1]) * (1 << failed_);
    failed_ = std::min(failed_ + 1, kMostDoublings);
    election_.reset();
    return false;
  }
  std::uint64_t term = std::max(highest_term_, self.state.promised_term);
  for (auto& [link, elector] : electors_) {
    term = std::max(term, elector.hello.state.promised_term);
    elector.vote.reset();
  }
  voters_.clear();
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
  if (!election_ || !vote.given() || vote.term != election_->term) return;
  if (!found->second.vote) voters_.add(link, found->second.hello);
  found->second.vote = vote;
}

std::optional<PersistentState> Succession::won(const Candidate& self) const {
  // This node has voted for a later term since.
  if (!election_ || self.state.promised_term != election_->term) return std::nullopt;
  std::optional<PersistentState> base = basis(self, voters_);
  if (base) base->promised_term = election_->term;
  return base;
}

bool Succession::has_judged(const Candidate& self, const PersistentState& base) const {
  const auto counted_less = [&base](const PersistentState& state) {
    return state.current.origin() == base.current.origin() && state.budget.restart_count < base.budget.restart_count;
  };
  return counted_less(self.state) || std::any_of(by_round_.begin(), by_round_.end(), [&](const auto& round) {
           return counted_less(*round.second.begin()->second);
         });
}

}  // namespace ddprun::rendezvous
