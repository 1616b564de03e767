// What the machines of the rendezvous know of the world outside: the time, and connections as opaque numbers. The shell
// (or the simulator) owns the real ones.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace ddprun::rendezvous {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Time since the machine was started, the time that it slept included: a lease goes on while a machine sleeps. It has no now():
// the shell tells the time (common/system/boot_time.hpp).
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

// A connection. The one dialled by this node has a number that the machine chose, with kDialled set; the shell numbers the
// accepted ones, without it. kSelfLink leads from this node's member to its own coordinator.
using LinkId = std::uint64_t;
inline constexpr LinkId kSelfLink = 0;
inline constexpr LinkId kDialled = LinkId{1} << 63;
inline constexpr LinkId kResume = LinkId{1} << 61;  // dialled again for a session whose connection was reset
inline constexpr LinkId kVisit = LinkId{1} << 62;   // dialled by its coordinator, to tell where it is

inline constexpr nanoseconds part_of(nanoseconds lease, double part) {
  return nanoseconds(static_cast<std::int64_t>(static_cast<double>(lease.count()) * part));
}
inline std::int64_t stamp_of(Time time) {
  return std::chrono::duration_cast<nanoseconds>(time.time_since_epoch()).count();
}
inline Time time_of(std::int64_t stamp) {
  return Time(std::chrono::duration_cast<Time::duration>(nanoseconds(stamp)));
}

// What another node says in milliseconds, but never nothing or for ever.
inline milliseconds sensible(std::int64_t count) {
  return milliseconds(std::clamp<std::int64_t>(count, 1, std::int64_t{3600} * 1000));
}

// Something worth a line on the console or in the report.
struct Notice {
  enum class Kind {
    kWaiting,    // fewer nodes than needed, or the last call runs: count of `of`
    kJoined,     // a node
    kLost,       // a node
    kSetAside,   // a node that was lost too often
    kRefused,    // a node
    kReleased,   // a round: count nodes
    kRoundOver,  // and why
    kLeading,    // this node became the coordinator
    kLooking,    // this node has no coordinator and looks for one
    kFollowing,  // it has found one
    kDecided,    // the arbiter has: which of two nodes goes on
  };
  Kind kind{};
  std::string text{};
  std::int64_t count = 0;
  std::int64_t of = 0;
};

}  // namespace ddprun::rendezvous
