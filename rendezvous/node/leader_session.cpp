#include "rendezvous/node/leader_session.hpp"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

// The pause between two attempts to resume a session. It avoids a busy loop while the network fails for a moment, for example
// when a cable is unplugged.
constexpr milliseconds kRedial{100};

}  // namespace

nanoseconds resume_time(const Rules& rules, nanoseconds lease) {
  return std::min<nanoseconds>(part_of(lease, rules.resume), milliseconds{1000});
}

void LeaderSession::begin(LinkId link) {
  const auto hello = hellos_.find(link);
  if (hello == hellos_.end()) return;
  const std::uint64_t attempt = hello->second;
  end();
  link_ = carrier_ = link;
  id_.attempt = attempt;
}

void LeaderSession::end() {
  hellos_.clear();
  link_ = carrier_ = 0;
  away_until_.reset();
  dial_again_.reset();
  end_ = {};
}

bool LeaderSession::send(FromMember& message) {
  end_.send(message);
  return !is_away();
}

std::optional<LinkId> LeaderSession::lost(nanoseconds lease, Time now) {
  const nanoseconds time = resume_time(rules_, lease);
  if (time <= nanoseconds{0}) return std::nullopt;
  if (!away_until_) away_until_ = now + time;
  dial_again_ = now;
  return due(now);
}

bool LeaderSession::failed(Time now) {
  carrier_ = 0;
  dial_again_ = now + kRedial;
  return !is_over(now);
}

std::optional<LinkId> LeaderSession::due(Time now) {
  if (!dial_again_ || *dial_again_ > now || is_over(now)) return std::nullopt;
  dial_again_.reset();
  carrier_ = kDialled | kResume | next_carrier_++;
  return carrier_;
}

std::optional<Time> LeaderSession::next_deadline() const {
  if (!away_until_) return std::nullopt;
  return dial_again_ ? std::min(*away_until_, *dial_again_) : *away_until_;
}

Resume LeaderSession::resume() const {
  return {.session = id_, .received = end_.received()};
}

std::optional<std::vector<FromMember>> LeaderSession::resumed(const Resumed& answer) {
  if (!is_away() || !end_.resume(answer.received)) return std::nullopt;
  away_until_.reset();
  dial_again_.reset();
  return rules_.missed_messages_are_resent ? end_.missing() : std::vector<FromMember>();
}

}  // namespace ddprun::rendezvous
