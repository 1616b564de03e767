// The types for time and connections in the pure state machines. The shell (or the simulator) owns the real clock and the real
// connections. It passes times to the state machines as values, and identifies connections by numbers.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::rendezvous {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// The clock of all leases: CLOCK_BOOTTIME, the time since the machine's boot. It includes suspends, because leases also expire
// during a suspend. The class has no now(), because the shell passes the time as an argument (common/system/boot_time.hpp).
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

// The number of a connection. If this node dials, its state machine chooses the number and sets the bit kDialled. For accepted
// connections, the shell chooses numbers in which this bit is not set. kSelfLink connects this node's member to the
// coordinator on the same node.
using LinkId = std::uint64_t;
inline constexpr LinkId kSelfLink = 0;
inline constexpr LinkId kDialled = LinkId{1} << 63;
// flag of a connection that this node dialed to resume a session after a reset
inline constexpr LinkId kResume = LinkId{1} << 61;
// flag of a connection that this node's coordinator dialed to announce its address
inline constexpr LinkId kAnnounce = LinkId{1} << 62;

inline constexpr nanoseconds part_of(nanoseconds lease, double part) {
  return nanoseconds(static_cast<std::int64_t>(static_cast<double>(lease.count()) * part));
}
inline std::int64_t stamp_of(Time time) {
  return std::chrono::duration_cast<nanoseconds>(time.time_since_epoch()).count();
}
inline Time time_of(std::int64_t stamp) {
  return Time(std::chrono::duration_cast<Time::duration>(nanoseconds(stamp)));
}

// Sets `next` to `time` if `time` is set and earlier, or if `next` is not set.
inline void keep_earlier(std::optional<Time>& next, const std::optional<Time>& time) {
  if (time && (!next || *time < *next)) next = time;
}

inline std::optional<Time> if_after(const std::optional<Time>& time, Time now) {
  return time && *time > now ? time : std::nullopt;
}

// Returns a duration in milliseconds that another node has sent, clamped to the range from 1 ms to 1 hour.
inline milliseconds clamped_milliseconds(std::int64_t count) {
  return milliseconds(std::clamp<std::int64_t>(count, 1, std::int64_t{3600} * 1000));
}

// An event that is shown on the console or in the report.
struct NodeNotice {
  enum class Kind {
    kWaiting,    // the job waits for nodes: `count` nodes of `of` are connected
    kJoined,     // a node joined
    kLost,       // a node was lost
    kSetAside,   // a node was lost too often and may not rejoin for some time
    kRefused,    // a node was refused
    kReleased,   // a round with `count` nodes was started
    kRoundOver,  // a round has ended; `text` is the reason
    kLeading,    // this node became the coordinator
    kSearching,  // this node has no coordinator and searches for one
    kFollowing,  // this node has found a coordinator
    kDecided,    // the arbiter has decided which of two nodes may lead
    kFailing,    // a node of the job failed several times in the last days (launcher/node_history)
  };
  Kind kind{};
  std::string text{};
  std::int64_t count = 0;
  std::int64_t of = 0;
  // for kLost and kSearching: the host name of the node that failed; empty if the name is unknown, or if the node left in an
  // orderly way
  std::string failed_host{};
};

}  // namespace ddprun::rendezvous
