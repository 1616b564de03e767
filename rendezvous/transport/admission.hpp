// The limits for connections that have not proved the token yet: which are kept, which are closed to make room, and when
// accepting pauses. Pure: arrivals and the time go in, ids to close come out. listener.cpp applies it.
//
// A newcomer that has sent nothing yet ("silent") makes room for others, the oldest first. So idle connections never block
// other peers, and in a burst of joins each newcomer has a moment to send. A newcomer whose hello proved the key ("started")
// may be a replayed recording, but is nearly always a member in a burst of joins. It is closed for others only if it is older
// than `grace`; until then accepting waits. The number of started ones per source is limited: further ones of that source count
// as silent.
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

// An IPv4 address (mapped), or the first half of an IPv6 address, since one machine can choose the second half freely.
using SourceAddress = std::array<std::uint8_t, 16>;

class Admission {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Id = std::uint64_t;

  struct Limits {
    std::size_t total = 4096;
    std::size_t silent_per_source = 1024;   // more only while they are younger than `grace`
    std::size_t started_per_source = 1024;  // further ones count as silent
    std::chrono::milliseconds handshake_time{5000};
    std::chrono::milliseconds grace{1000};
    std::chrono::milliseconds moment{100};
  };

  struct Admitted {
    Id id = 0;
    std::vector<Id> evicted;  // already removed here: close them
  };

  explicit Admission(Limits limits) : limits_(limits) {}

  // True if the next connection may be accepted now.
  bool may_admit(TimePoint now) const;
  // The time at which may_admit() becomes true without any other event. Only valid while may_admit() is false.
  TimePoint admits_at() const;
  // Call it only when may_admit() is true.
  Admitted admit(const SourceAddress& source, TimePoint now);
  void started(Id id);
  void forget(Id id);  // the peer has authenticated, or its connection closed
  // The newcomer to close if the process has no descriptors left; it is removed here. nullopt if there is none.
  std::optional<Id> evict_one();
  // The newcomers whose handshake took too long. They are already removed here.
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
