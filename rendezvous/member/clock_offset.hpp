// The difference between the coordinator's clock and this node's clock. The answer with the shortest round trip gives the best
// estimate, as in NTP. The member passes in the answers, and adds the difference to its failure reports. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

class ClockOffset {
 public:
  void begin() { best_round_trip_.reset(); }  // for a new coordinator; the old value stays until its first answer
  void hear(const Pong& pong, Now now) {
    const std::int64_t round_trip = stamp_of(now.steady) - pong.echo;
    if (best_round_trip_ && round_trip >= *best_round_trip_) return;
    best_round_trip_ = round_trip;
    skew_ns_ = static_cast<std::int64_t>(static_cast<std::uint64_t>(pong.realtime_ns) -
                                         static_cast<std::uint64_t>(now.realtime_ns - round_trip / 2));
  }
  std::int64_t skew_ns() const { return skew_ns_; }

 private:
  std::optional<std::int64_t> best_round_trip_;
  std::int64_t skew_ns_ = 0;
};

}  // namespace ddprun::rendezvous
