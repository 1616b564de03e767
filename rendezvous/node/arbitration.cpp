#include "rendezvous/node/arbitration.hpp"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

// If a query gets no answer, it is repeated after this pause, which is a fraction of the lease.
constexpr double kPause = 0.1;

bool contains(const std::vector<RoundId>& rounds, const RoundId& round) {
  return std::find(rounds.begin(), rounds.end(), round) != rounds.end();
}

}  // namespace

std::optional<Ballot> Arbitration::query(const std::vector<Config>& alone_in, nanoseconds lease, Time now) {
  const bool pauses = retry_at_ && *retry_at_ > now;
  if (pending_ || pauses) return std::nullopt;
  retry_at_.reset();
  pause_ = part_of(lease, kPause);
  for (const Config& round : alone_in) {
    if (contains(won_, round.origin()) || contains(lost_, round.origin())) continue;
    if (round.arbiter == Arbiter::kRunDirectory && round.origin() == remembered_) {
      no_answer_ = "this agent was restarted and does not know the run directory that both nodes share";
      continue;
    }
    pending_ = Ballot{round.arbiter, round.founder, round.origin()};
    return pending_;
  }
  return std::nullopt;
}

void Arbitration::receive(const Ballot& ballot, BallotAnswer answer, const std::string& why, Time now) {
  if (pending_ == ballot) pending_.reset();
  if (answer == BallotAnswer::kOthers && !rules_.arbiter_vote_is_exclusive) answer = BallotAnswer::kMine;
  switch (answer) {
    case BallotAnswer::kMine:
      if (!contains(won_, ballot.origin)) won_.push_back(ballot.origin);
      return;
    case BallotAnswer::kOthers:
      if (!contains(lost_, ballot.origin)) lost_.push_back(ballot.origin);
      return;
    case BallotAnswer::kNone:
      no_answer_ = why;
      retry_at_ = now + pause_;
      return;
  }
}

std::optional<Hello> Arbitration::voter(const Record& record) const {
  const auto as_arbiter = [&](Config round) {
    round.rank = round.has_arbiter() && contains(won_, round.origin()) ? round.nodes : -1;
    return round;
  };
  Hello arbiter;
  arbiter.node = kArbiterId;
  arbiter.incarnation = UINT64_MAX;
  arbiter.state.promised_term = record.state.promised_term;
  arbiter.state.current = as_arbiter(record.state.current);
  arbiter.state.previous = as_arbiter(record.state.previous);
  if (arbiter.state.current.rank < 0 && arbiter.state.previous.rank < 0) return std::nullopt;
  return arbiter;
}

std::string Arbitration::why_not() const {
  if (!lost_.empty()) return ": the arbiter chose the other node, which continues";
  return no_answer_.empty() ? "" : ": " + no_answer_;
}

}  // namespace ddprun::rendezvous
