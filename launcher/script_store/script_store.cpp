// Implementation of script_store.hpp.
#include "launcher/script_store/script_store.hpp"

// Note [Why this file is long]
// It is one store: each query reads and changes the same keys, and all data held for clients counts towards one limit. Queries
// are parsed elsewhere (store_query.hpp).

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace ddprun::script_store {
namespace {

// The protocol's one-byte answers.
constexpr char kStopWaiting = 0;
constexpr char kWaitCanceled = 1;
constexpr char kReady = 0;
constexpr char kNotReady = 1;

template <class Number>
std::string raw(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

void add_text(std::string& bytes, std::string_view text) {
  bytes.append(raw<std::uint64_t>(text.size())).append(text);
}

std::string one_byte(char byte) {
  return {byte};
}

// Parses like std::stoll: leading spaces and a sign are allowed, and characters after the digits are ignored.
std::optional<std::int64_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size()));
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc{} ? std::optional(number) : std::nullopt;
}

constexpr std::size_t kCostOfWaiting =
    256;  // bytes per key for the entries of two hash tables and a list of clients, without the key itself

std::size_t cost_of_waiting_for(std::string_view key) {
  return kCostOfWaiting + 2 * key.size();
}

// A key in printable form.
std::string shown(std::string_view key) {
  constexpr std::size_t kMost = 60;
  return "'" + std::string(key.substr(0, kMost)) + (key.size() > kMost ? "..." : "") + "'";
}

}  // namespace

void ScriptStore::connected(int client) {
  clients_.insert_or_assign(client, Client{});
}

void ScriptStore::gone(int client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  stop_waiting(client);
  unfinished_bytes_ -= found->second.input.size();
  unsent_bytes_ -= found->second.unsent;
  if (found->second.in_line) std::erase(line_, client);
  clients_.erase(found);
}

std::vector<Action> ScriptStore::received(int number, std::string_view bytes) {
  const auto found = clients_.find(number);
  if (found == clients_.end()) return {};
  found->second.input.append(bytes);
  unfinished_bytes_ += bytes.size();
  if (is_served(number)) process_or_cut_off(number, Turn::kNo);
  enforce_bound();
  return std::exchange(actions_, {});
}

void ScriptStore::sent(int number, std::size_t bytes) {
  const auto found = clients_.find(number);
  if (found == clients_.end()) return;
  Client& client = found->second;
  bytes = std::min(bytes, client.unsent);
  client.unsent -= bytes;
  unsent_bytes_ -= bytes;
  client.read += bytes;
  if (client.waits_for_reader && client.unsent <= limits_.light_bytes) wait_in_line(number, client, 0);
}

bool ScriptStore::is_served(int number) const {
  const auto found = clients_.find(number);
  return found != clients_.end() && !found->second.in_line && !found->second.waits_for_reader;
}

// ---- turns ----

std::optional<int> ScriptStore::next_turn() const {
  if (line_.empty() || !has_room_for(clients_.at(line_.front()).next_answer)) return std::nullopt;
  return line_.front();
}

std::vector<Action> ScriptStore::take_turn() {
  const auto number = next_turn();
  if (!number) return {};
  line_.pop_front();
  clients_.at(*number).in_line = false;
  process_or_cut_off(*number, Turn::kYes);
  enforce_bound();
  return std::exchange(actions_, {});
}

std::vector<Action> ScriptStore::make_room() {
  auto worst = clients_.end();
  for (auto one = clients_.begin(); one != clients_.end(); ++one) {
    const bool stands = std::exchange(one->second.read, 0) < limits_.light_bytes && one->second.unsent > 0;
    if (stands && (worst == clients_.end() || one->second.unsent > worst->second.unsent)) worst = one;
  }
  if (worst != clients_.end()) cut_off(worst->first, "others wait for room, and it does not read its answers");
  return std::exchange(actions_, {});
}

void ScriptStore::wait_in_line(int number, Client& client, std::size_t next_answer) {
  client.waits_for_reader = false;
  client.in_line = true;
  client.next_answer = next_answer;
  line_.push_back(number);
}

bool ScriptStore::has_room_for(std::size_t answer) const {
  return answer <= limits_.light_bytes || unsent_bytes_ == 0 || pending() + answer <= limits_.pending_bytes / 4 * 3;
}

// 0 for queries whose answers have only a few bytes.
std::size_t ScriptStore::answer_bytes(const Query& query) const {
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

void ScriptStore::process_or_cut_off(int number, Turn turn) {
  try {
    process(number, turn);
  } catch (const Refused& refused) {
    cut_off(number, refused.why);
  }
}

// Serves the available queries, up to one that has to wait. With a turn, one of them may have a large answer.
void ScriptStore::process(int number, Turn turn) {
  Client& client = clients_.at(number);
  std::size_t done = 0;
  while (client.input.size() - done >= client.needed) {
    const ReadQuery read = read_query(std::string_view(client.input).substr(done), limits_);
    if (!read.refusal.empty()) throw Refused{read.refusal};
    client.needed = read.query ? 1 : read.bytes;
    if (!read.query) break;
    if (client.unsent > limits_.light_bytes) {
      client.waits_for_reader = true;
      break;
    }
    const std::size_t answer = client.is_validated ? answer_bytes(*read.query) : 0;
    if (answer > limits_.light_bytes && answer <= limits_.reply_bytes) {  // an even larger answer is refused
      if (turn == Turn::kNo || !has_room_for(answer)) {
        wait_in_line(number, client, answer);
        break;
      }
      turn = Turn::kNo;
    }
    handle(number, *read.query);
    done += read.bytes;
  }
  client.input.erase(0, done);
  // Releases the memory of a large value.
  if (client.input.empty() && client.input.capacity() > limits_.light_bytes) client.input.shrink_to_fit();
  unfinished_bytes_ -= done;
}

void ScriptStore::cut_off(int client, const std::string& why) {
  gone(client);
  actions_.emplace_back(Disconnect{client, why});
}

void ScriptStore::enforce_bound() {
  while (pending() > limits_.pending_bytes) {
    const auto most = std::ranges::max_element(clients_, {}, [](const auto& one) { return one.second.pending(); });
    cut_off(most->first, "the clients together have more than " + std::to_string(limits_.pending_bytes) +
                             " bytes pending, and it has the most");
  }
}

// As in TCPStore, a set, an append and a push get no answer.
void ScriptStore::handle(int number, const Query& query) {
  if (Client& client = clients_.at(number); !client.is_validated) {
    if (query.kind != QueryKind::kValidate || query.number != kMagic)
      throw Refused{"it is no client of TCPStore (PyTorch before 2.1, or no PyTorch: --agent-store off)"};
    client.is_validated = true;
    return;
  }
  const std::string key(query.keys.empty() ? std::string_view() : query.keys[0]);
  switch (query.kind) {
    case QueryKind::kValidate:
      return;
    case QueryKind::kPing:
      return reply(number, raw(static_cast<std::uint32_t>(query.number)));
    case QueryKind::kSet:
    case QueryKind::kSetMany:
      for (std::size_t i = 0; i < query.keys.size(); ++i) put(query.keys[i], query.values[i]);
      return;
    case QueryKind::kAppend:
      return append(key, query.values[0]);
    case QueryKind::kCompareSet: {
      std::string bytes;
      add_text(bytes, compare_and_set(query));
      return reply(number, std::move(bytes));
    }
    case QueryKind::kGet:
    case QueryKind::kGetMany:
      return reply(number, values_of(query.keys));
    case QueryKind::kAdd:
      return reply(number, raw(add(key, query.number)));
    case QueryKind::kDelete: {
      const bool existed = values_.contains(key);
      if (existed) erase_value(key);
      return reply(number, raw<std::int64_t>(existed ? 1 : 0));
    }
    case QueryKind::kCountKeys:
      return reply(number, raw(static_cast<std::int64_t>(values_.size())));
    case QueryKind::kListKeys:
      return reply(number, list_of_keys());
    case QueryKind::kCheck:
      return reply(number, one_byte(all_exist(query.keys) ? kReady : kNotReady));
    case QueryKind::kWait:
      return wait_for(number, query.keys);
    case QueryKind::kCancelWait:
      stop_waiting(number);
      return reply(number, one_byte(kWaitCanceled));
    case QueryKind::kBarrier:
      return join_barrier(number, query);
    case QueryKind::kPush:
      return push(key, query.values[0]);
    case QueryKind::kPop:
      return pop(number, key);
    case QueryKind::kQueueLength:
      return reply(number, raw(length_of_queue(key)));
  }
}

// `client` must exist.
void ScriptStore::reply(int client, std::string bytes) {
  clients_.at(client).unsent += bytes.size();
  unsent_bytes_ += bytes.size();
  actions_.emplace_back(Send{client, std::move(bytes)});
}

// ---- keys and values ----

void ScriptStore::charge(std::size_t more_keys, std::size_t more_bytes) {
  if (keys_ + more_keys > limits_.keys || bytes_ + more_bytes > limits_.total_bytes) {
    throw Refused{"the store is full: " + std::to_string(keys_) + " keys, " + std::to_string(bytes_) + " bytes"};
  }
  keys_ += more_keys;
  bytes_ += more_bytes;
}

void ScriptStore::put(std::string_view name, std::string_view value) {
  const std::string key(name);
  set_value(key, value);
  wake_all(key);
}

void ScriptStore::set_value(const std::string& key, std::string_view value) {
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

void ScriptStore::append(std::string_view key, std::string_view value) {
  const std::string_view before = value_of(key);
  if (before.size() + value.size() > limits_.value_bytes) {
    throw Refused{"the value of " + shown(key) + " would have more than " + std::to_string(limits_.value_bytes) + " bytes"};
  }
  put(key, std::string(before).append(value));
}

void ScriptStore::erase_value(const std::string& key) {
  const auto found = values_.find(key);
  bytes_ -= found->first.size() + found->second.size();
  --keys_;
  key_bytes_ -= found->first.size();
  values_.erase(found);
}

std::int64_t ScriptStore::add(std::string_view key, std::int64_t amount) {
  std::int64_t sum = 0;
  if (values_.contains(std::string(key))) {
    const auto before = number_in(value_of(key));
    if (!before) throw Refused{"it adds to " + shown(key) + ", whose value is no number"};
    sum = *before;
  }
  if (__builtin_add_overflow(sum, amount, &sum)) throw Refused{"the sum of " + shown(key) + " does not fit in 64 bits"};
  put(key, std::to_string(sum));
  return sum;
}

// A missing key counts as an empty value. If another value is expected, the expected value is the answer.
std::string ScriptStore::compare_and_set(const Query& query) {
  const std::string key(query.keys[0]);
  std::string expected(query.values[0]);
  if (!values_.contains(key) && !expected.empty()) return expected;
  if (value_of(key) == expected) put(key, query.values[1]);
  return std::string(value_of(key));
}

std::string_view ScriptStore::value_of(std::string_view key) const {
  const auto found = values_.find(std::string(key));
  return found == values_.end() ? std::string_view() : std::string_view(found->second);
}

std::string ScriptStore::values_of(const std::vector<std::string_view>& keys) const {
  std::string bytes;
  for (const std::string_view key : keys) {
    add_text(bytes, value_of(key));
    if (bytes.size() > limits_.reply_bytes) {
      throw Refused{"it asks for values of more than " + std::to_string(limits_.reply_bytes) + " bytes at once"};
    }
  }
  return bytes;
}

std::string ScriptStore::list_of_keys() const {
  const std::size_t size = answer_bytes({.kind = QueryKind::kListKeys});
  if (size > limits_.reply_bytes) {
    throw Refused{"the list of all keys has more than " + std::to_string(limits_.reply_bytes) + " bytes"};
  }
  std::string bytes = raw(static_cast<std::int64_t>(values_.size()));
  bytes.reserve(size);
  for (const auto& [key, value] : values_) add_text(bytes, key);
  return bytes;
}

bool ScriptStore::exists(const std::string& key) const {
  return values_.contains(key) || queues_.contains(key);
}

bool ScriptStore::all_exist(const std::vector<std::string_view>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](std::string_view key) { return exists(std::string(key)); });
}

// ---- queues ----

void ScriptStore::push(std::string_view name, std::string_view value) {
  const std::string key(name);
  charge(1, key.size() + value.size());
  queues_[key].emplace_back(value);
  wake_one(key);
}

// The answer has the number of entries before the pop, and the first entry.
void ScriptStore::pop(int client, const std::string& key) {
  std::string bytes = raw(length_of_queue(key));
  if (const auto found = queues_.find(key); found != queues_.end()) {
    std::deque<std::string>& queue = found->second;
    add_text(bytes, queue.front());
    bytes_ -= key.size() + queue.front().size();
    --keys_;
    queue.pop_front();
    if (queue.empty()) queues_.erase(found);
  }
  reply(client, std::move(bytes));
}

std::int64_t ScriptStore::length_of_queue(const std::string& key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : static_cast<std::int64_t>(found->second.size());
}

// ---- waiting ----

void ScriptStore::wait_for(int client, const std::vector<std::string_view>& keys) {
  stop_waiting(client);
  const std::unordered_set<std::string>& awaits = clients_.at(client).awaits;
  for (const std::string_view key : keys) {
    const std::string wanted(key);
    if (!exists(wanted) && !awaits.contains(wanted)) await(client, wanted);
  }
  if (awaits.empty()) reply(client, one_byte(kStopWaiting));
}

// The key's value counts the clients that have arrived. The last one wakes the others.
void ScriptStore::join_barrier(int client, const Query& query) {
  stop_waiting(client);
  const std::string key(query.keys[0]);
  const auto before = values_.contains(key) ? number_in(value_of(key)) : 0;
  std::int64_t count = 0;
  if (!before || __builtin_add_overflow(*before, 1, &count)) {
    throw Refused{"it waits at the barrier " + shown(key) + ", whose value is no number"};
  }
  set_value(key, std::to_string(count));
  if (count >= query.number) {
    wake_all(key);
    return reply(client, one_byte(kStopWaiting));
  }
  await(client, key);
}

void ScriptStore::await(int client, const std::string& key) {
  Client& waiter = clients_.at(client);
  waiting_[key].push_back(client);
  waiter.awaits.insert(key);
  waiter.awaited_cost += cost_of_waiting_for(key);
  awaited_cost_ += cost_of_waiting_for(key);
}

void ScriptStore::stop_waiting(int client) {
  Client& waiter = clients_.at(client);
  awaited_cost_ -= std::exchange(waiter.awaited_cost, 0);
  for (const std::string& key : std::exchange(waiter.awaits, {})) {
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) continue;
    std::erase(found->second, client);
    if (found->second.empty()) waiting_.erase(found);
  }
}

void ScriptStore::wake_all(const std::string& key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const std::vector<int> clients = std::move(found->second);
  waiting_.erase(found);
  for (const int client : clients) came(client, key);
}

void ScriptStore::wake_one(const std::string& key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const int client = found->second.front();
  found->second.erase(found->second.begin());
  if (found->second.empty()) waiting_.erase(found);
  came(client, key);
}

// A client that waits for several keys is answered when the last of them is set.
void ScriptStore::came(int client, const std::string& key) {
  Client& waiter = clients_.at(client);
  waiter.awaited_cost -= cost_of_waiting_for(key);
  awaited_cost_ -= cost_of_waiting_for(key);
  waiter.awaits.erase(key);
  if (waiter.awaits.empty()) reply(client, one_byte(kStopWaiting));
}

}  // namespace ddprun::script_store
