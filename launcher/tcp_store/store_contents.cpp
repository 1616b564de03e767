#include "launcher/tcp_store/store_contents.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace ddprun::script_store {
namespace {

// Parses a number as TCPStore does with std::stoll: skips white space at the start, accepts a sign, and ignores characters
// after the digits.
std::optional<std::int64_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size()));
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc{} ? std::optional(number) : std::nullopt;
}

// Returns the key in quotes for a message, cut to 60 bytes.
std::string shown(std::string_view key) {
  constexpr std::size_t kMaxShown = 60;
  return "'" + std::string(key.substr(0, kMaxShown)) + (key.size() > kMaxShown ? "..." : "") + "'";
}

}  // namespace

// The caller needs the size only of replies that may be large, so the result is 0 for all others.
std::size_t StoreContents::answer_bytes(const Query& query) const {
  constexpr std::size_t kLength = sizeof(std::uint64_t);
  std::size_t bytes = 0;
  switch (query.kind) {
    case QueryKind::kGet:
    case QueryKind::kGetMany:
      for (const std::string_view key : query.keys) bytes += kLength + value_of(key).size();
      return bytes;
    case QueryKind::kCompareSet:
      return kLength + std::max({value_of(query.keys[0]).size(), query.values[0].size(), query.values[1].size()});
    case QueryKind::kListKeys:
      return kLength + values_.size() * kLength + key_bytes_;
    case QueryKind::kPop: {
      const auto queue = queues_.find(std::string(query.keys[0]));
      return 2 * kLength + (queue == queues_.end() ? 0 : queue->second.front().size());
    }
    default:
      return 0;
  }
}

void StoreContents::charge(std::size_t more_keys, std::size_t more_bytes) {
  if (keys_ + more_keys > limits_.keys || bytes_ + more_bytes > limits_.total_bytes) {
    throw RefusedQuery{"the store is full: " + std::to_string(keys_) + " keys, " + std::to_string(bytes_) + " bytes"};
  }
  keys_ += more_keys;
  bytes_ += more_bytes;
}

void StoreContents::set(const std::string& key, std::string_view value) {
  if (const auto found = values_.find(key); found != values_.end()) {
    const std::size_t before = found->second.size();
    charge(0, value.size() > before ? value.size() - before : 0);
    if (value.size() < before) bytes_ -= before - value.size();
    found->second = value;
  } else {
    charge(1, key.size() + value.size());
    key_bytes_ += key.size();
    values_.emplace(key, value);
  }
}

void StoreContents::append(const std::string& key, std::string_view value) {
  const std::string_view before = value_of(key);
  if (before.size() + value.size() > limits_.value_bytes) {
    throw RefusedQuery{"the value of " + shown(key) + " would have more than " + std::to_string(limits_.value_bytes) +
                       " bytes"};
  }
  set(key, std::string(before).append(value));
}

bool StoreContents::erase(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= found->first.size() + found->second.size();
  --keys_;
  key_bytes_ -= found->first.size();
  values_.erase(found);
  return true;
}

std::int64_t StoreContents::add(const std::string& key, std::int64_t amount) {
  std::int64_t sum = 0;
  if (values_.contains(key)) {
    const auto before = number_in(value_of(key));
    if (!before) throw RefusedQuery{"the client sent an add for " + shown(key) + ", whose value is not a number"};
    sum = *before;
  }
  if (__builtin_add_overflow(sum, amount, &sum)) throw RefusedQuery{"the sum of " + shown(key) + " does not fit in 64 bits"};
  set(key, std::to_string(sum));
  return sum;
}

std::int64_t StoreContents::count_at_barrier(const std::string& key) {
  const auto before = values_.contains(key) ? number_in(value_of(key)) : 0;
  std::int64_t count = 0;
  if (!before || __builtin_add_overflow(*before, 1, &count)) {
    throw RefusedQuery{"the client waits at the barrier " + shown(key) + ", whose value is not a number"};
  }
  set(key, std::to_string(count));
  return count;
}

// Compares like TCPStore: a missing key equals an empty expected value. If the key is missing and the expected value is not
// empty, the reply is the expected value.
StoreContents::Compared StoreContents::compare_and_set(const Query& query) {
  const std::string key(query.keys[0]);
  const std::string expected(query.values[0]);
  if (!values_.contains(key) && !expected.empty()) return {.value = expected};
  const bool equal = value_of(key) == expected;
  if (equal) set(key, query.values[1]);
  return {.value = std::string(value_of(key)), .set = equal};
}

std::string_view StoreContents::value_of(std::string_view key) const {
  const auto found = values_.find(std::string(key));
  return found == values_.end() ? std::string_view() : std::string_view(found->second);
}

std::string StoreContents::values_of(const std::vector<std::string_view>& keys) const {
  std::string bytes;
  for (const std::string_view key : keys) {
    add_text(bytes, value_of(key));
    if (bytes.size() > limits_.reply_bytes) {
      throw RefusedQuery{"the client requests values of more than " + std::to_string(limits_.reply_bytes) +
                         " bytes in one query"};
    }
  }
  return bytes;
}

std::string StoreContents::list_of_keys() const {
  const std::size_t size = answer_bytes({.kind = QueryKind::kListKeys});
  if (size > limits_.reply_bytes) {
    throw RefusedQuery{"the list of all keys has more than " + std::to_string(limits_.reply_bytes) + " bytes"};
  }
  std::string bytes = raw(static_cast<std::int64_t>(values_.size()));
  bytes.reserve(size);
  for (const auto& [key, value] : values_) add_text(bytes, key);
  return bytes;
}

bool StoreContents::exists(const std::string& key) const {
  return values_.contains(key) || queues_.contains(key);
}

bool StoreContents::all_exist(const std::vector<std::string_view>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](std::string_view key) { return exists(std::string(key)); });
}

void StoreContents::push(const std::string& key, std::string_view value) {
  charge(1, key.size() + value.size());
  queues_[key].emplace_back(value);
}

// The reply contains the length of the queue before the pop, and then the first entry if there is one.
std::string StoreContents::pop(const std::string& key) {
  std::string bytes = raw(length_of_queue(key));
  if (const auto found = queues_.find(key); found != queues_.end()) {
    std::deque<std::string>& queue = found->second;
    add_text(bytes, queue.front());
    bytes_ -= key.size() + queue.front().size();
    --keys_;
    queue.pop_front();
    if (queue.empty()) queues_.erase(found);
  }
  return bytes;
}

std::int64_t StoreContents::length_of_queue(const std::string& key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : static_cast<std::int64_t>(found->second.size());
}

}  // namespace ddprun::script_store
