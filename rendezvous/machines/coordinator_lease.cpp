// Implementation of coordinator.hpp, second part: its authority. Whoever sends a stamp back promised thereby not to vote for
// anybody else for 1.25 leases from then on; so for one lease after the newest stamp that a majority has sent back nobody else
// can lead. Until a round is committed a majority of the round before is needed as well.
#include <algorithm>

#include "rendezvous/machines/coordinator.hpp"

namespace ddprun::rendezvous {

// Counting is a pass over all nodes, so of many it is done at most fifty times a lease; an older figure is never too large.
Time Coordinator::authority_end() const {
  constexpr std::size_t kMany = 64;
  const bool fresh = peers_.size() > kMany && authority_counted_ && *authority_counted_ + settings_.lease / 50 > now_.steady;
  if (!fresh || authority_end_ <= now_.steady) {
    authority_counted_ = now_.steady;
    authority_end_ = authority_under(true);
    if (previous_.exists() && settings_.rules.both_rounds_until_committed) {
      authority_end_ = std::min(authority_end_, authority_under(false));
    }
  }
  return authority_end_;
}

Time Coordinator::authority_under(bool current) const {
  const Config& config = current ? current_ : previous_;
  const nanoseconds length = part_of(settings_.lease, settings_.rules.authority);
  if (!config.exists()) return now_.steady + length;

  std::vector<std::pair<Time, std::int32_t>> answers;  // newest answered question, group rank
  answers.reserve(peers_.size());
  for (const auto& [id, peer] : peers_) {
    const std::int32_t rank = current ? peer.rank : peer.previous_rank;
    if (rank < 0) continue;
    // Who left does not vote any more.
    answers.emplace_back(id == settings_.self || peer.departed ? now_.steady : time_of(peer.answered), rank);
  }
  std::sort(answers.begin(), answers.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Time begins{};
  Tally tally(config.nodes);
  for (const auto& [time, rank] : answers) {
    tally.add(rank);
    begins = time;
    if (tally.enough(settings_.rules)) break;
  }
  if (!tally.enough(settings_.rules)) begins = Time{};
  // Whoever votes as part of the current round was released into it, and heard this coordinator at that time.
  return (current ? std::max(begins, authority_begins_) : begins) + length;
}

void Coordinator::check_authority() {
  if (!current_.exists() || phase_ == Phase::kOver || !settings_.rules.grants_need_majority) return;
  if (authority_end() > now_.steady || stays_until_ > now_.steady) return;
  phase_ = Phase::kSteppedDown;
  act(coordinator_action::StepDown{
      .why = "less than a majority of the " + std::to_string(current_.nodes) + " nodes answers", .term = 0, .leader = {}});
}

}  // namespace ddprun::rendezvous
