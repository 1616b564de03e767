// The keys, values and queues of the store for scripts, with limits on their number and size. It does not handle clients:
// ScriptStore (script_store.hpp) owns it, sends the replies and wakes waiting clients. Its functions throw RefusedQuery if a
// query exceeds a limit or does not fit the stored value. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "launcher/tcp_store/store_query.hpp"

namespace ddprun::script_store {

// The store throws this if a query cannot be processed. ScriptStore then disconnects the client.
struct RefusedQuery {
  std::string why;
};

// Encodes a number for TCPStore's protocol: its bytes in the byte order of this machine.
template <class Number>
std::string raw(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// Appends the length of `text` as 8 bytes, and then `text` itself.
inline void add_text(std::string& bytes, std::string_view text) {
  bytes.append(raw<std::uint64_t>(text.size())).append(text);
}

class StoreContents {
 public:
  explicit StoreContents(const Limits& limits) : limits_(limits) {}

  void set(const std::string& key, std::string_view value);
  void append(const std::string& key, std::string_view value);
  bool erase(const std::string& key);  // returns false if the key has no value
  std::int64_t add(const std::string& key, std::int64_t amount);
  // Adds 1 to the key's value, which counts the clients at this barrier. Returns the new number.
  std::int64_t count_at_barrier(const std::string& key);
  struct Compared {
    std::string value;  // value that the client receives
    bool set = false;   // true: the key had the expected value, which was replaced
  };
  Compared compare_and_set(const Query& query);
  void push(const std::string& key, std::string_view value);
  // Removes the first entry of a queue. Returns the reply: the length of the queue before the removal, and the removed entry if
  // there was one.
  std::string pop(const std::string& key);

  // These functions return the encoded replies to kGet, kGetMany and kListKeys.
  std::string values_of(const std::vector<std::string_view>& keys) const;
  std::string list_of_keys() const;
  bool all_exist(const std::vector<std::string_view>& keys) const;
  bool exists(const std::string& key) const;  // true if the key has a value or a non-empty queue
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }
  std::int64_t length_of_queue(const std::string& key) const;
  // Returns the size in bytes of the reply to this query. Returns 0 for queries that always have a reply of only a few bytes.
  std::size_t answer_bytes(const Query& query) const;

 private:
  // Adds to the number of keys and bytes in the store. Throws RefusedQuery, without adding them, if a limit would be exceeded.
  void charge(std::size_t more_keys, std::size_t more_bytes);
  std::string_view value_of(std::string_view key) const;

  Limits limits_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;  // contains only queues that are not empty
  std::size_t keys_ = 0;
  std::size_t bytes_ = 0;
  std::size_t key_bytes_ = 0;  // total size of the keys in values_
};

}  // namespace ddprun::script_store
