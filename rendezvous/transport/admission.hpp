// Limits the connections whose peer has not proved yet that it has the token (newcomers). This class decides which newcomers
// are kept, which are closed so that others can connect, and when the listener stops accepting for a while. The class is pure:
// its inputs are arrivals and the time, and its outputs are the ids to close. listener.cpp carries out the decisions.
//
// The problem. Any machine on the network can open connections and send nothing. Without limits, these connections would use
// up all descriptors, and no member could join. But when a job starts, thousands of members may connect within a second, and
// no member may be rejected.
//
// The idea. A newcomer that has sent nothing yet is "silent". If another connection needs its slot, the oldest silent newcomer
// is closed, so idle connections cannot block other peers. A newcomer whose ClientHello has proved the key is "started". A
// started newcomer is nearly always a member, but it could be a replay of recorded bytes. So it is closed for another
// connection only if it is older than `grace`. Until then, the listener stops accepting. The number of started newcomers per
// source address is limited. Above the limit, newcomers of that source count as silent.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

namespace ddprun {

// The source of a connection: a mapped IPv4 address, or the first half of an IPv6 address, because a machine can choose the
// second half freely.
using SourceAddress = std::array<std::uint8_t, 16>;

class Admission {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Id = std::uint64_t;

  struct Limits {
    std::size_t total = 4096;
    // above this number of silent newcomers from one address, the oldest is closed if it is older than `grace`
    std::size_t silent_per_source = 1024;
    // above this number of started newcomers from one address, the others count as silent
    std::size_t started_per_source = 1024;
    std::chrono::milliseconds handshake_time{5000};
    std::chrono::milliseconds grace{1000};
    std::chrono::milliseconds min_wait{100};
  };

  struct Admitted {
    Id id = 0;
    std::vector<Id> evicted;  // newcomers that the caller must close; they no longer count toward the limits
  };

  explicit Admission(Limits limits) : limits_(limits) {}

  // Returns true if the next connection may be accepted now.
  bool may_admit(TimePoint now) const;
  // Returns the time at which may_admit() becomes true without another event. Call this only while may_admit() is false.
  TimePoint admits_at() const;
  // Call this only when may_admit() is true.
  Admitted admit(const SourceAddress& source, TimePoint now);
  void started(Id id);
  void forget(Id id);  // call this when the peer of this newcomer is authenticated, or its connection is closed
  // Returns the newcomer that the caller must close if the process has no free descriptor; nullopt if there is none. The
  // newcomer no longer counts toward the limits.
  std::optional<Id> evict_one();
  // Returns the newcomers whose handshake took too long, which the caller must close. They no longer count toward the limits.
  std::vector<Id> expire(TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  std::size_t size() const { return where_.size(); }

 private:
  struct Newcomer {
    Id id = 0;
    SourceAddress source{};
    TimePoint arrival;
  };
  using Queue = std::list<Newcomer>;  // oldest first
  struct Place {
    Queue* queue = nullptr;
    Queue::iterator entry;
  };

  void evict(Queue::iterator entry, Queue& queue, std::vector<Id>& evicted);

  Limits limits_;
  Id next_id_ = 1;
  Queue silent_;
  Queue started_;
  std::unordered_map<Id, Place> where_;
  std::map<SourceAddress, std::size_t> silent_of_;
  std::map<SourceAddress, std::size_t> started_of_;
};

}  // namespace ddprun
