#include "rendezvous/coordinator/leader_lease.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace ddprun::rendezvous {

// A ping that arrives before a majority has answered gets a grant that is too short to start workers. The first ping of the
// coordinator's own node always arrives that early. A ping that got a short grant is answered a second time, so that the node
// need not wait for its next ping.
void LeaderLease::answer(Peer& peer, std::int64_t stamp, Now now, Outbox& outbox) {
  send_pong(peer, stamp, now, outbox);
  if (!membership_.committed()) note_uncommitted(peer, stamp);
  if (!bootstrap_.done() || grant(now.steady) <= part_of(settings_.lease, settings_.rules.min_grant_to_start)) {
    short_answers_.insert_or_assign(peer.hello.node, stamp);
    return;
  }
  short_answers_.erase(peer.hello.node);
  for (const auto& [id, ping_stamp] : std::exchange(short_answers_, {})) {
    const Peer* other = peers_.find(id);
    if (other != nullptr && other->connected()) send_pong(*other, ping_stamp, now, outbox);
  }
}

void LeaderLease::answer_later(Peer& peer, std::int64_t stamp) {
  short_answers_.insert_or_assign(peer.hello.node, stamp);
  if (!membership_.committed()) note_uncommitted(peer, stamp);
}

void LeaderLease::note_uncommitted(Peer& peer, std::int64_t stamp) const {
  peer.unconfirmed_ping = stamp;
  peer.unconfirmed_release = releases_;
}

void LeaderLease::committed(const std::vector<Successor>& successors, Now now, Outbox& outbox) {
  const std::uint64_t release = releases_++;
  for (const Successor& successor : successors) {
    const Peer* peer = peers_.find(successor.node);
    if (peer != nullptr && peer->connected() && peer->unconfirmed_release == release) {
      send_pong(*peer, peer->unconfirmed_ping, now, outbox);
    }
  }
}

void LeaderLease::send_pong(const Peer& peer, std::int64_t stamp, Now now, Outbox& outbox) const {
  outbox.send(peer, Pong{.echo = stamp,
                         .stamp = stamp_of(now.steady),
                         .realtime_ns = now.realtime_ns,
                         .grant_ns = peer.is_late || !bootstrap_.done() ? 0 : grant(now.steady).count(),
                         .committed = membership_.committed() ? membership_.current().id : RoundId{}});
}

nanoseconds LeaderLease::grant(Time now) const {
  const nanoseconds left = settings_.rules.grants_need_majority ? end(now) - now : settings_.lease;
  return std::clamp(left, nanoseconds{0}, part_of(settings_.lease, settings_.rules.grant));
}

std::optional<Time> LeaderLease::deadline(Time now) const {
  if (!membership_.current().exists() || !settings_.rules.grants_need_majority) return std::nullopt;
  return std::max(end(now), stays_until_);
}

bool LeaderLease::has_ended(Time now) const {
  const auto ended = [&] {
    const std::optional<Time> end = deadline(now);
    return end && *end <= now;
  };
  if (!ended()) return false;
  counted_at_.reset();  // The cached end of the lease may not include the newest stamps.
  return ended();
}

// Returns the time at which this node counts as alone in the two-node `round`. A healthy node answers at least every 0.4
// leases, or a little later if the network is slow. After a silence of 0.6 leases the other node is probably lost.
std::optional<Time> LeaderLease::alone_at(const Config& round, bool current) const {
  if (!round.has_arbiter()) return std::nullopt;
  const Peer* const self = peers_.find(settings_.self);
  if (self == nullptr || (current ? self->rank : self->previous_rank) < 0) return std::nullopt;
  constexpr double kSilence = 0.6;
  Time last_answer{};
  for (const auto& [id, peer] : peers_.all()) {
    const std::int32_t rank = current ? peer.rank : peer.previous_rank;
    if (rank < 0 || id == settings_.self) continue;
    // This node is not alone if the peer has departed, because the vote of a departed peer already counts for this node. When
    // an arbiter votes, the peer is marked as departed too.
    if (peer.departed) return std::nullopt;
    if (peer.connected()) last_answer = std::max(last_answer, time_of(peer.answered));
    if (peer.connected()) last_answer = std::max(last_answer, current ? released_at_ : previous_released_at_);
  }
  return last_answer == Time{} ? last_answer : last_answer + part_of(settings_.lease, kSilence);
}

std::vector<Config> LeaderLease::alone_in(Time now) const {
  std::vector<Config> alone;
  const auto consider = [&](const Config& round, bool current) {
    if (const auto at = alone_at(round, current); at && *at <= now) alone.push_back(round);
  };
  consider(membership_.current(), /*current=*/true);
  consider(membership_.previous(), /*current=*/false);
  return alone;
}

std::optional<Time> LeaderLease::alone_at(Time now) const {
  std::optional<Time> next;
  keep_earlier(next, if_after(alone_at(membership_.current(), /*current=*/true), now));
  keep_earlier(next, if_after(alone_at(membership_.previous(), /*current=*/false), now));
  return next;
}

void LeaderLease::round_released(Time now) {
  previous_released_at_ = std::exchange(released_at_, now);
  ++releases_;
  count_again();
}

// Computes the end of the lease. Each computation takes one pass over all nodes. So with more than 64 nodes the result is
// cached for a fiftieth of a lease. A cached result is safe, because it is never later than the true end. The cache is also
// used after the lease has ended: a new coordinator may receive ten thousand answers, and must not scan all nodes for each
// answer.
Time LeaderLease::end(Time now) const {
  constexpr std::size_t kManyNodes = 64;
  const bool fresh = peers_.all().size() > kManyNodes && counted_at_ && *counted_at_ + nanoseconds{settings_.lease} / 50 > now;
  if (!fresh) {
    counted_at_ = now;
    end_ = end_under(membership_.current(), /*current=*/true, now);
    if (membership_.previous().exists() && settings_.rules.both_rounds_until_committed) {
      end_ = std::min(end_, end_under(membership_.previous(), /*current=*/false, now));
    }
  }
  return end_;
}

void newest_first(std::vector<Answer>& answers, const Config& round, const Rules& rules) {
  const auto newer = [](const Answer& a, const Answer& b) { return a.first > b.first; };
  const std::ptrdiff_t too_few = round.voters() / 2 - 1;
  const bool counted_by_half = rules.majority_needed && !round.has_arbiter();
  if (!counted_by_half || too_few <= 0 || too_few >= std::ssize(answers))
    return std::sort(answers.begin(), answers.end(), newer);
  const auto matters = answers.begin() + too_few;
  std::nth_element(answers.begin(), matters, answers.end(), newer);
  // Only two answers are needed: the answer that completes half of the votes, and the next older answer.
  constexpr std::ptrdiff_t kRelevant = 2;
  std::partial_sort(matters, matters + std::min(kRelevant, answers.end() - matters), answers.end(), newer);
}

Time LeaderLease::end_under(const Config& config, bool current, Time now) const {
  const nanoseconds length = part_of(settings_.lease, settings_.rules.authority);
  if (!config.exists()) return now + length;

  std::vector<Answer> answers;
  answers.reserve(peers_.all().size());
  counted_ += std::ssize(peers_.all());
  for (const auto& [id, peer] : peers_.all()) {
    const std::int32_t rank = current ? peer.rank : peer.previous_rank;
    if (rank < 0) continue;
    // A departed node does not vote for another coordinator, so it counts as a node that has answered now.
    answers.emplace_back(id == settings_.self || peer.departed ? now : time_of(peer.answered), rank);
  }
  newest_first(answers, config, settings_.rules);
  Time begins{};
  Tally tally(config);
  for (const auto& [time, rank] : answers) {
    tally.add(rank);
    begins = time;
    if (tally.enough(settings_.rules)) break;
  }
  if (!tally.enough(settings_.rules)) begins = Time{};
  // The release counts as a stamp too, because a node votes as a member of this round only after it has received the release.
  return std::max(begins, current ? released_at_ : previous_released_at_) + length;
}

}  // namespace ddprun::rendezvous
