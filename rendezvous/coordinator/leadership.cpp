// Implementation of leadership.hpp.
#include "rendezvous/coordinator/leadership.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace ddprun::rendezvous {

// A ping may arrive before a majority has answered; that of the coordinator's own node always does. Such a node must not wait
// until its next ping before it starts its workers.
void Leadership::answer(Peer& peer, std::int64_t stamp, bool founded, const Membership& membership, const Peers& peers, Now now,
                        Outbox& outbox) {
  send_pong(peer, stamp, founded, membership, peers, now, outbox);
  if (!membership.committed()) note_uncommitted(peer, stamp);
  if (!founded || grant(membership, peers, now.steady) <= part_of(lease_, rules_.start_with)) {
    short_answers_.insert_or_assign(peer.hello.node, stamp);
    return;
  }
  short_answers_.erase(peer.hello.node);
  for (const auto& [id, asked] : std::exchange(short_answers_, {})) {
    const Peer* other = peers.find(id);
    if (other != nullptr && other->here()) send_pong(*other, asked, founded, membership, peers, now, outbox);
  }
}

void Leadership::answer_later(Peer& peer, std::int64_t stamp, const Membership& membership) {
  short_answers_.insert_or_assign(peer.hello.node, stamp);
  if (!membership.committed()) note_uncommitted(peer, stamp);
}

void Leadership::note_uncommitted(Peer& peer, std::int64_t stamp) const {
  peer.unconfirmed_ping = stamp;
  peer.unconfirmed_release = releases_;
}

void Leadership::committed(const std::vector<Successor>& successors, bool founded, const Membership& membership,
                           const Peers& peers, Now now, Outbox& outbox) {
  const std::uint64_t release = releases_++;
  for (const Successor& successor : successors) {
    const Peer* peer = peers.find(successor.node);
    if (peer != nullptr && peer->here() && peer->unconfirmed_release == release) {
      send_pong(*peer, peer->unconfirmed_ping, founded, membership, peers, now, outbox);
    }
  }
}

void Leadership::send_pong(const Peer& peer, std::int64_t stamp, bool founded, const Membership& membership, const Peers& peers,
                           Now now, Outbox& outbox) const {
  outbox.send(peer, Pong{.echo = stamp,
                         .stamp = stamp_of(now.steady),
                         .realtime_ns = now.realtime_ns,
                         .grant_ns = peer.straggles || !founded ? 0 : grant(membership, peers, now.steady).count(),
                         .committed = membership.committed() ? membership.current().id : RoundId{}});
}

nanoseconds Leadership::grant(const Membership& membership, const Peers& peers, Time now) const {
  const nanoseconds left = rules_.grants_need_majority ? end(membership, peers, now) - now : lease_;
  return std::clamp(left, nanoseconds{0}, part_of(lease_, rules_.grant));
}

std::optional<Time> Leadership::deadline(const Membership& membership, const Peers& peers, Time now) const {
  if (!membership.current().exists() || !rules_.grants_need_majority) return std::nullopt;
  return std::max(end(membership, peers, now), stays_until_);
}

bool Leadership::has_ended(const Membership& membership, const Peers& peers, Time now) const {
  const auto ended = [&] {
    const std::optional<Time> end = deadline(membership, peers, now);
    return end && *end <= now;
  };
  if (!ended()) return false;
  counted_at_.reset();  // the cached count may be too old
  return ended();
}

// A healthy node answers every two fifths of the lease, and later if the network is slow.
std::optional<Time> Leadership::alone_at(const Config& round, bool current, const Peers& peers) const {
  if (!round.has_arbiter()) return std::nullopt;
  const Peer* const self = peers.find(self_);
  if (self == nullptr || (current ? self->rank : self->previous_rank) < 0) return std::nullopt;
  constexpr double kSilence = 0.6;
  Time heard{};
  for (const auto& [id, peer] : peers.all()) {
    const std::int32_t rank = current ? peer.rank : peer.previous_rank;
    if (rank < 0 || id == self_) continue;
    if (peer.departed) return std::nullopt;  // this node already has its vote; the same holds for the arbiter
    if (peer.here()) heard = std::max(heard, time_of(peer.answered));
    if (peer.here()) heard = std::max(heard, current ? released_at_ : previous_released_at_);
  }
  return heard == Time{} ? heard : heard + part_of(lease_, kSilence);
}

std::vector<Config> Leadership::alone_in(const Membership& membership, const Peers& peers, Time now) const {
  std::vector<Config> alone;
  const auto consider = [&](const Config& round, bool current) {
    if (const auto at = alone_at(round, current, peers); at && *at <= now) alone.push_back(round);
  };
  consider(membership.current(), /*current=*/true);
  consider(membership.previous(), /*current=*/false);
  return alone;
}

std::optional<Time> Leadership::alone_at(const Membership& membership, const Peers& peers, Time now) const {
  std::optional<Time> next;
  const auto consider = [&](const std::optional<Time>& at) {
    if (at && *at > now && (!next || *at < *next)) next = at;
  };
  consider(alone_at(membership.current(), /*current=*/true, peers));
  consider(alone_at(membership.previous(), /*current=*/false, peers));
  return next;
}

void Leadership::round_released(Time now) {
  previous_released_at_ = std::exchange(released_at_, now);
  ++releases_;
  count_again();
}

// Counting takes one pass over all nodes. With many nodes it is done at most fifty times per lease. That is safe, since an
// older result is never too late. The limit also applies while there is no authority: a new coordinator may await ten thousand
// answers, and each answer would otherwise count all others again.
Time Leadership::end(const Membership& membership, const Peers& peers, Time now) const {
  constexpr std::size_t kManyNodes = 64;
  const bool fresh = peers.all().size() > kManyNodes && counted_at_ && *counted_at_ + lease_ / 50 > now;
  if (!fresh) {
    counted_at_ = now;
    end_ = end_under(membership.current(), /*current=*/true, peers, now);
    if (membership.previous().exists() && rules_.both_rounds_until_committed) {
      end_ = std::min(end_, end_under(membership.previous(), /*current=*/false, peers, now));
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
  constexpr std::ptrdiff_t kMostThatMatter = 2;  // half of all, and one more
  std::partial_sort(matters, matters + std::min(kMostThatMatter, answers.end() - matters), answers.end(), newer);
}

Time Leadership::end_under(const Config& config, bool current, const Peers& peers, Time now) const {
  const nanoseconds length = part_of(lease_, rules_.authority);
  if (!config.exists()) return now + length;

  std::vector<Answer> answers;
  answers.reserve(peers.all().size());
  counted_ += std::ssize(peers.all());
  for (const auto& [id, peer] : peers.all()) {
    const std::int32_t rank = current ? peer.rank : peer.previous_rank;
    if (rank < 0) continue;
    // A node that has left does not vote.
    answers.emplace_back(id == self_ || peer.departed ? now : time_of(peer.answered), rank);
  }
  newest_first(answers, config, rules_);
  Time begins{};
  Tally tally(config);
  for (const auto& [time, rank] : answers) {
    tally.add(rank);
    begins = time;
    if (tally.enough(rules_)) break;
  }
  if (!tally.enough(rules_)) begins = Time{};
  // This coordinator released the round, so each of its voters has heard this coordinator at that time.
  return std::max(begins, current ? released_at_ : previous_released_at_) + length;
}

}  // namespace ddprun::rendezvous
