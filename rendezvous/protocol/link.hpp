// The interface of the state machines to the outside: the time, and connections as opaque numbers. The shell (or the simulator)
// owns the real ones.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace ddprun::rendezvous {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// CLOCK_BOOTTIME: time since the boot of the machine, including suspends, since leases also expire during a suspend. This clock
// has no now(): the shell passes the time in (common/system/boot_time.hpp).
struct LeaseClock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = nanoseconds;
  using time_point = std::chrono::time_point<LeaseClock>;
  static constexpr bool is_steady = true;
};
using Time = LeaseClock::time_point;

struct Now {
  Time steady{};
  std::int64_t realtime_ns = 0;
};

// A connection. If this node dials, its state machine chooses the number and sets kDialled. The shell numbers accepted
// connections, without kDialled. kSelfLink connects this node's member to its own coordinator.
using LinkId = std::uint64_t;
inline constexpr LinkId kSelfLink = 0;
inline constexpr LinkId kDialled = LinkId{1} << 63;
inline constexpr LinkId kResume = LinkId{1} << 61;    // dialed again, to resume a session whose connection was reset
inline constexpr LinkId kAnnounce = LinkId{1} << 62;  // dialed by this node's coordinator, to announce its address

inline constexpr nanoseconds part_of(nanoseconds lease, double part) {
  return nanoseconds(static_cast<std::int64_t>(static_cast<double>(lease.count()) * part));
}
inline std::int64_t stamp_of(Time time) {
  return std::chrono::duration_cast<nanoseconds>(time.time_since_epoch()).count();
}
inline Time time_of(std::int64_t stamp) {
  return Time(std::chrono::duration_cast<Time::duration>(nanoseconds(stamp)));
}

// A duration in milliseconds from another node, limited to a sane range: neither zero nor endless.
inline milliseconds sensible(std::int64_t count) {
  return milliseconds(std::clamp<std::int64_t>(count, 1, std::int64_t{3600} * 1000));
}

// An event that is worth a line on the console or in the report.
struct NodeNotice {
  enum class Kind {
    kWaiting,    // fewer nodes than needed, or the last call runs: `count` of `of` are connected
    kJoined,     // a node joined
    kLost,       // a node was lost
    kSetAside,   // a node was lost too often
    kRefused,    // a node was refused
    kReleased,   // a round of `count` nodes was released
    kRoundOver,  // a round is over; `text` is the reason
    kLeading,    // this node became the coordinator
    kLooking,    // this node has no coordinator and looks for one
    kFollowing,  // this node has found one
    kDecided,    // the arbiter has decided which of two nodes may lead
  };
  Kind kind{};
  std::string text{};
  std::int64_t count = 0;
  std::int64_t of = 0;
};

}  // namespace ddprun::rendezvous
