#include "launcher/tcp_store/script_store.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace ddprun::script_store {
namespace {

// The one-byte replies of TCPStore's protocol.
constexpr char kStopWaiting = 0;
constexpr char kWaitCanceled = 1;
constexpr char kReady = 0;
constexpr char kNotReady = 1;

std::string one_byte(char byte) {
  return {byte};
}

// The estimated memory in bytes for each key for which a client waits: entries of two hash tables and of a list, without the
// key's text.
constexpr std::size_t kCostOfWaiting = 256;

std::size_t cost_of_waiting_for(std::string_view key) {
  return kCostOfWaiting + 2 * key.size();
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
  if (found->second.waits_for_turn) std::erase(turn_queue_, client);
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
  if (client.waits_for_reader && client.unsent <= limits_.light_bytes) wait_for_turn(number, client, 0);
}

bool ScriptStore::is_served(int number) const {
  const auto found = clients_.find(number);
  return found != clients_.end() && !found->second.waits_for_turn && !found->second.waits_for_reader;
}

// ---- turns ----

std::optional<int> ScriptStore::next_turn() const {
  if (turn_queue_.empty() || !has_space_for(clients_.at(turn_queue_.front()).next_answer)) return std::nullopt;
  return turn_queue_.front();
}

std::vector<Action> ScriptStore::take_turn() {
  const auto number = next_turn();
  if (!number) return {};
  turn_queue_.pop_front();
  clients_.at(*number).waits_for_turn = false;
  process_or_cut_off(*number, Turn::kYes);
  enforce_bound();
  return std::exchange(actions_, {});
}

// Disconnects the stalled client with the most unsent bytes. Also sets `read` of all clients to 0, for the next call.
std::vector<Action> ScriptStore::free_space() {
  auto worst = clients_.end();
  for (auto one = clients_.begin(); one != clients_.end(); ++one) {
    const bool stands = std::exchange(one->second.read, 0) < limits_.light_bytes && one->second.unsent > 0;
    if (stands && (worst == clients_.end() || one->second.unsent > worst->second.unsent)) worst = one;
  }
  if (worst != clients_.end())
    cut_off(worst->first, "the client does not read the replies of the store, and other clients wait for buffer space");
  return std::exchange(actions_, {});
}

void ScriptStore::wait_for_turn(int number, Client& client, std::size_t next_answer) {
  client.waits_for_reader = false;
  client.waits_for_turn = true;
  client.next_answer = next_answer;
  turn_queue_.push_back(number);
}

// Returns true if a reply of this size may be sent now. A reply of at most light_bytes may always be sent. If all other
// replies have been sent, any size is allowed. Without this exception, a reply larger than three quarters of the limit could
// never be sent.
bool ScriptStore::has_space_for(std::size_t answer) const {
  return answer <= limits_.light_bytes || unsent_bytes_ == 0 || pending() + answer <= limits_.pending_bytes / 4 * 3;
}

void ScriptStore::process_or_cut_off(int number, Turn turn) {
  try {
    process(number, turn);
  } catch (const RefusedQuery& refused) {
    cut_off(number, refused.why);
  }
}

// Processes the complete queries in the client's input, up to the first one that must wait. With Turn::kYes, one of these
// queries may have a large reply.
void ScriptStore::process(int number, Turn turn) {
  Client& client = clients_.at(number);
  std::size_t done = 0;
  while (client.input.size() - done >= client.needed) {
    const ReadQuery read = read_query(std::string_view(client.input).substr(done), limits_);
    if (!read.refusal.empty()) throw RefusedQuery{read.refusal};
    client.needed = read.query ? 1 : read.bytes;
    if (!read.query) break;
    if (client.unsent > limits_.light_bytes) {
      client.waits_for_reader = true;
      break;
    }
    const std::size_t answer = client.is_validated ? contents_.answer_bytes(*read.query) : 0;
    if (answer > limits_.light_bytes && answer <= limits_.reply_bytes) {  // handle() refuses larger replies
      if (turn == Turn::kNo || !has_space_for(answer)) {
        wait_for_turn(number, client, answer);
        break;
      }
      turn = Turn::kNo;
    }
    handle(number, *read.query);
    done += read.bytes;
  }
  client.input.erase(0, done);
  // If the input is empty, the memory that a large value has used is released.
  if (client.input.empty() && client.input.capacity() > limits_.light_bytes) client.input.shrink_to_fit();
  unfinished_bytes_ -= done;
}

void ScriptStore::cut_off(int client, const std::string& why) {
  gone(client);
  actions_.emplace_back(Disconnect{client, why});
}

// Disconnects clients until the pending data is within the limit, starting with the client that has the most pending data.
void ScriptStore::enforce_bound() {
  while (pending() > limits_.pending_bytes) {
    const auto most = std::ranges::max_element(clients_, {}, [](const auto& one) { return one.second.pending(); });
    cut_off(most->first, "the store has more than " + std::to_string(limits_.pending_bytes) +
                             " unsent bytes for its clients, most of them for this client");
  }
}

// Processes one query, sends the reply, and wakes waiting clients. As in TCPStore, set, append and push have no reply.
void ScriptStore::handle(int number, const Query& query) {
  if (Client& client = clients_.at(number); !client.is_validated) {
    if (query.kind != QueryKind::kValidate || query.number != kMagic)
      throw RefusedQuery{
          "the client is not a TCPStore client of PyTorch 2.1 or newer (for other clients, use --agent-store off)"};
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
      for (std::size_t i = 0; i < query.keys.size(); ++i) {
        const std::string each(query.keys[i]);
        contents_.set(each, query.values[i]);
        wake_all(each);
      }
      return;
    case QueryKind::kAppend:
      contents_.append(key, query.values[0]);
      return wake_all(key);
    case QueryKind::kCompareSet: {
      const StoreContents::Compared compared = contents_.compare_and_set(query);
      if (compared.set) wake_all(key);
      std::string bytes;
      add_text(bytes, compared.value);
      return reply(number, std::move(bytes));
    }
    case QueryKind::kGet:
    case QueryKind::kGetMany:
      return reply(number, contents_.values_of(query.keys));
    case QueryKind::kAdd: {
      const std::int64_t sum = contents_.add(key, query.number);
      wake_all(key);
      return reply(number, raw(sum));
    }
    case QueryKind::kDelete:
      return reply(number, raw<std::int64_t>(contents_.erase(key) ? 1 : 0));
    case QueryKind::kCountKeys:
      return reply(number, raw(contents_.size()));
    case QueryKind::kListKeys:
      return reply(number, contents_.list_of_keys());
    case QueryKind::kCheck:
      return reply(number, one_byte(contents_.all_exist(query.keys) ? kReady : kNotReady));
    case QueryKind::kWait:
      return wait_for(number, query.keys);
    case QueryKind::kCancelWait:
      stop_waiting(number);
      return reply(number, one_byte(kWaitCanceled));
    case QueryKind::kBarrier:
      return join_barrier(number, query);
    case QueryKind::kPush:
      contents_.push(key, query.values[0]);
      return wake_one(key);
    case QueryKind::kPop:
      return reply(number, contents_.pop(key));
    case QueryKind::kQueueLength:
      return reply(number, raw(contents_.length_of_queue(key)));
  }
}

// Sends a reply to the client, which must exist.
void ScriptStore::reply(int client, std::string bytes) {
  clients_.at(client).unsent += bytes.size();
  unsent_bytes_ += bytes.size();
  actions_.emplace_back(Send{client, std::move(bytes)});
}

// ---- waiting ----

// Replies immediately if all keys exist. Otherwise the client waits for the missing keys.
void ScriptStore::wait_for(int client, const std::vector<std::string_view>& keys) {
  stop_waiting(client);
  const std::unordered_set<std::string>& awaits = clients_.at(client).awaits;
  for (const std::string_view key : keys) {
    const std::string wanted(key);
    if (!contents_.exists(wanted) && !awaits.contains(wanted)) await(client, wanted);
  }
  if (awaits.empty()) reply(client, one_byte(kStopWaiting));
}

// Adds a client to a barrier. The value of `key` counts the clients that have reached it. The last client gets its reply
// immediately, and the others are woken.
void ScriptStore::join_barrier(int client, const Query& query) {
  stop_waiting(client);
  const std::string key(query.keys[0]);
  const std::int64_t count = contents_.count_at_barrier(key);
  if (count >= query.number) {
    wake_all(key);
    return reply(client, one_byte(kStopWaiting));
  }
  await(client, key);
}

// Adds the client to the list of clients that wait for `key`, and counts the memory for this as pending.
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

// Wakes all clients that wait for `key`, in the order in which they started to wait.
void ScriptStore::wake_all(const std::string& key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const std::vector<int> clients = std::move(found->second);
  waiting_.erase(found);
  for (const int client : clients) key_arrived(client, key);
}

// Wakes only the client that has waited longest for `key`, since a push adds only one entry.
void ScriptStore::wake_one(const std::string& key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const int client = found->second.front();
  found->second.erase(found->second.begin());
  if (found->second.empty()) waiting_.erase(found);
  key_arrived(client, key);
}

// Call this when `key`, for which the client was waiting, has been set. The client gets its reply when all keys for which it
// waits are set.
void ScriptStore::key_arrived(int client, const std::string& key) {
  Client& waiter = clients_.at(client);
  waiter.awaited_cost -= cost_of_waiting_for(key);
  awaited_cost_ -= cost_of_waiting_for(key);
  waiter.awaits.erase(key);
  if (waiter.awaits.empty()) reply(client, one_byte(kStopWaiting));
}

}  // namespace ddprun::script_store
