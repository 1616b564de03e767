// The key-value store of the workers, with the semantics of c10d::Store (HashStore and TCPStore). It is a pure state machine:
// its inputs are requests and the time, and its outputs are replies. launcher/workers/store_server.hpp connects the store to
// the worker channels, and clears it before each round (a start of the job's workers). Keys, values and the number of waiting
// requests are limited. A request that exceeds a limit changes nothing and gets the reply kError.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
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
  std::size_t total_bytes = 256 << 20;  // maximum total size of all keys and values
  std::size_t keys = 1 << 18;
  std::size_t waiters_per_client = 1 << 10;
};

class Store {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A reply, and the client that receives it. The rank of a worker identifies the client.
  struct Answer {
    int client = 0;
    channel::StoreReply reply;
  };

  explicit Store(StoreLimits limits = {}) : limits_(limits) {}

  // Handles one request. The first element of the result is the reply to this request, unless the request must wait for a key.
  // The other elements are replies to waiting requests that this request has completed, oldest first.
  std::vector<Answer> handle(int client, const channel::StoreRequest& request, TimePoint now);
  // Returns a timeout reply for each waiting request whose deadline has passed, earliest deadline first.
  std::vector<Answer> expire(TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  // Removes the waiting requests of a client that has disconnected. Keys that this client has set remain in the store.
  void forget(int client);
  // Removes all keys and all waiting requests. Call this before the workers are started for a new round.
  void clear();

 private:
  struct Waiter {
    int client = 0;
    std::uint64_t request = 0;
    bool wants_value = false;  // true for a get request, whose reply contains the value; false for a wait request
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
