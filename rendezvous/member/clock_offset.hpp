// Estimates the difference between the real-time clocks of the coordinator and of this node. The coordinator needs the
// difference to sort the failure reports of different nodes by time. As in NTP, the answer with the shortest round trip gives
// the best estimate. The member passes each Pong to this class, and adds the estimate to its failure reports. The code is
// pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

class ClockOffset {
 public:
  // Call this when the node follows a new coordinator. The old estimate stays in use until the new coordinator has answered a
  // ping.
  void begin() { best_round_trip_.reset(); }
  void receive(const Pong& pong, Now now) {
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
