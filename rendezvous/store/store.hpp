// The workers' key-value store as a pure state machine with the semantics of c10d::Store (HashStore and TCPStore): requests and
// the time go in, answers come out. launcher/workers/store_server.hpp serves it over the worker channels and empties it for
// each round. Every size is limited; a request that breaks a limit is answered with kError and changes nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/channel/message.hpp"

namespace ddprun {

struct StoreLimits {
  std::size_t key_bytes = 4 << 10;
  std::size_t value_bytes = 16 << 20;
  std::size_t total_bytes = 256 << 20;  // keys and values
  std::size_t keys = 1 << 18;
  std::size_t waiters_per_client = 1 << 10;
};

class Store {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A reply to one client (a rank).
  struct Answer {
    int client = 0;
    channel::StoreReply reply;
  };

  explicit Store(StoreLimits limits = {}) : limits_(limits) {}

  // Handles one request. Returns its reply first, unless it waits. Then follow the replies to the waiters that it satisfied,
  // oldest first.
  std::vector<Answer> handle(int client, const channel::StoreRequest& request, TimePoint now);
  // Answers the waiters whose timeout has passed, in the order of their deadlines.
  std::vector<Answer> expire(TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  // The client is gone: drops its waiters and keeps its keys.
  void forget(int client);
  // A new round begins: removes all keys and waiters.
  void clear();

 private:
  struct Waiter {
    int client = 0;
    std::uint64_t request = 0;
    bool wants_value = false;  // true: a get; false: a wait
    std::string first_key;
    std::unordered_set<std::string> missing;
    std::optional<TimePoint> deadline;
  };
  using Waiters = std::list<Waiter>;  // oldest first

  std::optional<std::string> refusal(const channel::StoreRequest& request) const;
  bool put(const std::string& key, const std::string& value);
  void wait_for(int client, const channel::StoreRequest& request, TimePoint now, std::vector<Answer>& answers);
  void wake(const std::string& key, std::vector<Answer>& answers);
  bool all_present(const std::vector<std::string>& keys) const;
  void add_to(const channel::StoreRequest& request, channel::StoreReply& reply);
  void compare_and_set(const channel::StoreRequest& request, channel::StoreReply& reply);

  StoreLimits limits_;
  std::unordered_map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  Waiters waiters_;
};

}  // namespace ddprun
