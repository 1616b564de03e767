// Who may wait at the door: which connections that have not shown the token yet are kept, which make room for others, and when
// no more are accepted. Pure: arrivals and the time go in, ids to close come out. listener.cpp obeys it.
//
// Newcomers that have said nothing yet ("silent") make room for others, the oldest first, so that idle connections never keep
// anybody out; in a burst of joins they get a moment to speak. Those whose hello proved the key ("started") may be recordings,
// but are nearly always members in a burst of joins: they are not closed for others but for one that is older than `grace`;
// accepting waits instead. Only so many of one source are favoured: who sends recordings has the others treated as silent.
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

// An IPv4 address (mapped) or the first half of an IPv6 one, which is what one machine gets to choose from.
using SourceAddress = std::array<std::uint8_t, 16>;

class Admission {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Id = std::uint64_t;

  struct Limits {
    std::size_t total = 4096;
    std::size_t silent_per_source = 1024;   // more only while they are younger than `grace`
    std::size_t started_per_source = 1024;  // further ones stay among the silent
    std::chrono::milliseconds handshake_time{5000};
    std::chrono::milliseconds grace{1000};
    std::chrono::milliseconds moment{100};
  };

  struct Admitted {
    Id id = 0;
    std::vector<Id> evicted;  // forgotten already: close them
  };

  explicit Admission(Limits limits) : limits_(limits) {}

  // Whether the next one may be accepted now.
  bool may_admit(TimePoint now) const;
  // When may_admit() becomes true by itself. Only meaningful while it is false.
  TimePoint admits_at() const;
  // Call only when may_admit().
  Admitted admit(const SourceAddress& source, TimePoint now);
  void started(Id id);
  void forget(Id id);  // authenticated or closed
  // The next one to make room when the process has no descriptors left. Nothing when nobody waits.
  std::optional<Id> evict_one();
  // Those whose time is over; forgotten already.
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
