// Encodes queries in the same way as the clients of PyTorch's TCPStore. The class Clients is a ScriptStore with simulated
// clients, and records the bytes that each client receives.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/tcp_store/script_store.hpp"

namespace ddprun::script_store {

template <class Number>
std::string raw_bytes(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

inline std::string text(std::string_view bytes) {
  return raw_bytes<std::uint64_t>(bytes.size()).append(bytes);
}

inline std::string list(const std::vector<std::string>& keys) {
  std::string bytes = raw_bytes<std::uint64_t>(keys.size());
  for (const std::string& key : keys) bytes += text(key);
  return bytes;
}

inline std::string query(QueryKind kind, const std::string& fields = {}) {
  return static_cast<char>(kind) + fields;
}

inline std::string validate() {
  return query(QueryKind::kValidate, raw_bytes(kMagic));
}
inline std::string set(std::string_view key, std::string_view value) {
  return query(QueryKind::kSet, text(key) + text(value));
}
inline std::string get(std::string_view key) {
  return query(QueryKind::kGet, text(key));
}
inline std::string add(std::string_view key, std::int64_t amount) {
  return query(QueryKind::kAdd, text(key) + raw_bytes(amount));
}
inline std::string wait(const std::vector<std::string>& keys) {
  return query(QueryKind::kWait, list(keys));
}
inline std::string push(std::string_view key, std::string_view value) {
  return query(QueryKind::kPush, text(key) + text(value));
}

const std::string kStop(1, '\0');
const std::string kCanceled(1, '\1');

class Clients {
 public:
  explicit Clients(Limits limits = {}) : store_(limits) {}

  void connect(int client) {
    store_.connected(client);
    send(client, validate());
  }
  void send(int client, std::string_view bytes) {
    carry_out(store_.received(client, bytes));
    while (store_.next_turn()) take_turn();
  }
  // Works like send(), but the clients do not read their answers, and the store serves no queued client.
  void send_unread(int client, std::string_view bytes) {
    reads_ = false;
    carry_out(store_.received(client, bytes));
    reads_ = true;
  }
  void take_turn() { carry_out(store_.take_turn()); }
  void take_turn_unread() {
    reads_ = false;
    take_turn();
    reads_ = true;
  }
  void free_space() { carry_out(store_.free_space()); }
  void read(int client, std::size_t bytes) { store_.sent(client, bytes); }
  ScriptStore& store() { return store_; }
  // Returns the bytes that the client has received since the last call.
  std::string got(int client) { return std::exchange(got_[client], {}); }
  std::string request(int client, std::string_view bytes) {
    send(client, bytes);
    return got(client);
  }
  // Returns the reason why the store disconnected the client, or an empty text if it is still connected.
  std::string cut_off(int client) const {
    const auto found = cut_off_.find(client);
    return found == cut_off_.end() ? "" : found->second;
  }
  const std::map<int, std::string>& all_cut_off() const { return cut_off_; }
  const std::map<int, std::string>& all_got() const { return got_; }
  void leave(int client) { store_.gone(client); }

 private:
  void carry_out(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (const auto* sent = std::get_if<Send>(&action)) {
        got_[sent->client] += sent->bytes;
        if (reads_) store_.sent(sent->client, sent->bytes.size());
      } else {
        const auto& cut = std::get<Disconnect>(action);
        cut_off_[cut.client] = cut.why;
      }
    }
  }

  ScriptStore store_;
  bool reads_ = true;
  std::map<int, std::string> got_;
  std::map<int, std::string> cut_off_;
};

}  // namespace ddprun::script_store
