#include "rendezvous/membership/membership.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {

Membership::Membership(const Authority& authority, const Rules& rules)
    : rules_(rules), current_(authority.known.current), previous_(authority.known.previous) {
  last_round_ = std::max(current_.id.round, previous_.id.round);
  if (current_.exists()) {  // quorum.hpp explains this in "inherited rounds are released again"
    if (authority.roster.origin == current_.origin()) {
      for (std::size_t rank = 0; rank < authority.roster.nodes.size(); ++rank) {
        inherited_ranks_.emplace(authority.roster.nodes[rank], static_cast<std::int32_t>(rank));
      }
    }
    if (rules_.inherited_rounds_are_renewed) current_.id.term = authority.term;
    committed_ = false;
  }
  installed_current_ = Tally(current_);
  installed_previous_ = Tally(previous_);
}

// Sets the node's ranks from the rounds in its Hello. The Hello may be old and contain no rank for the round, so std::max()
// keeps a rank that is already set.
void Membership::recall_ranks(Peer& peer, const Hello& hello) {
  for (const Config& remembered : {hello.state.current, hello.state.previous}) {
    if (!remembered.exists()) continue;
    if (remembered.origin() == current_.origin()) peer.rank = std::max(peer.rank, remembered.rank);
    if (previous_.exists() && remembered.origin() == previous_.origin()) {
      peer.previous_rank = std::max(peer.previous_rank, remembered.rank);
    }
  }
  if (const auto inherited = inherited_ranks_.find(hello.node); inherited != inherited_ranks_.end()) {
    peer.rank = inherited->second;
  }
  last_round_ = std::max(last_round_, hello.state.current.id.round);
}

void Membership::begin_round(std::uint64_t term, const std::vector<Peer*>& by_rank, const Arbitrated& arbitrated,
                             Peers& peers) {
  previous_ = current_;
  current_ = Config{.id = {term, ++last_round_},
                    .born = term,
                    .nodes = static_cast<std::int32_t>(by_rank.size()),
                    .arbiter = arbitrated.arbiter,
                    .founder = arbitrated.founder};
  committed_ = false;
  inherited_ranks_.clear();
  installed_current_ = Tally(current_);
  installed_previous_ = Tally(previous_);
  for (auto& [id, peer] : peers.all()) {
    peer.previous_rank = peer.rank;
    peer.rank = -1;
    peer.installed = false;
    // A departed node does not vote again. So it counts as if it had installed the round.
    if (peer.departed) installed_previous_.add(peer.previous_rank);
  }
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] != nullptr) by_rank[rank]->rank = static_cast<std::int32_t>(rank);
  }
}

bool Membership::install(Peer& peer, Peers& peers) {
  if (std::exchange(peer.installed, true)) return false;
  installed_current_.add(peer.rank);
  installed_previous_.add(peer.previous_rank);
  return check_committed(peers);
}

// The arbiter cannot vote for another node in the same round. So it counts like a departed node.
bool Membership::arbiter_votes(const RoundId& origin, Peers& peers) {
  const bool is_current = current_.has_arbiter() && current_.origin() == origin;
  const bool is_previous = previous_.has_arbiter() && previous_.origin() == origin;
  if (!is_current && !is_previous) return false;
  Peer& arbiter = peers.get_or_add(kArbiterId);
  arbiter.hello.node = kArbiterId;
  arbiter.departed = true;
  std::int32_t& rank = is_current ? arbiter.rank : arbiter.previous_rank;
  const Config& round = is_current ? current_ : previous_;
  if (std::exchange(rank, round.nodes) < 0) (is_current ? installed_current_ : installed_previous_).add(rank);
  return check_committed(peers);
}

bool Membership::check_committed(Peers& peers) {
  if (committed_ || !installed_current_.enough(rules_) || !installed_previous_.enough(rules_)) return false;
  committed_ = true;
  forget_previous(peers);
  return true;
}

bool Membership::was_committed_for(const PersistentState& state) const {
  return previous_.exists() && state.current.origin() == current_.origin() && !state.previous.exists();
}

void Membership::forget_previous(Peers& peers) {
  previous_ = Config{};
  installed_previous_ = Tally();
  for (auto& [id, peer] : peers.all()) peer.previous_rank = -1;
}

}  // namespace ddprun::rendezvous
