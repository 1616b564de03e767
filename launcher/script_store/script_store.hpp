// The store that scripts share, with the semantics of PyTorch's TCPStore, as a machine of bytes: what clients send comes in,
// what they get goes out. launcher/store_process/store_process.cpp is the shell with the sockets. It needs no clock, since
// clients keep their own time and cancel their waits. Everything has a limit (store_query.hpp); whoever breaks one is cut off.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "launcher/script_store/store_query.hpp"

namespace ddprun::script_store {

struct Send {
  int client = 0;
  std::string bytes;
};
// The machine has forgotten the client. `why` is for people.
struct Disconnect {
  int client = 0;
  std::string why;
};
using Action = std::variant<Send, Disconnect>;

class ScriptStore {
 public:
  explicit ScriptStore(Limits limits = {}) : limits_(limits) {}

  // A client's number is the caller's. It may be given again after `gone` or Disconnect.
  void connected(int client);
  std::vector<Action> received(int client, std::string_view bytes);
  // Its waits are dropped, its keys stay.
  void gone(int client);

 private:
  struct Client {
    std::string input;       // what is there of its next queries
    std::size_t needed = 1;  // how much of that makes it worth a look
    bool is_validated = false;
    std::unordered_set<std::string> awaits;
  };
  // Why a query cannot be served.
  struct Refused {
    std::string why;
  };

  void handle(int client, const Query& query);
  void reply(int client, std::string bytes);
  void put(std::string_view key, std::string_view value);
  void set_value(const std::string& key, std::string_view value);  // wakes nobody
  void append(std::string_view key, std::string_view value);
  void erase_value(const std::string& key);
  void push(std::string_view key, std::string_view value);
  void pop(int client, const std::string& key);
  std::int64_t add(std::string_view key, std::int64_t amount);
  std::string compare_and_set(const Query& query);
  std::string list_of_keys() const;
  std::string values_of(const std::vector<std::string_view>& keys) const;
  std::string_view value_of(std::string_view key) const;
  bool exists(const std::string& key) const;
  bool all_exist(const std::vector<std::string_view>& keys) const;
  std::int64_t length_of_queue(const std::string& key) const;
  void charge(std::size_t more_keys, std::size_t more_bytes);

  void wait_for(int client, const std::vector<std::string_view>& keys);
  void join_barrier(int client, const Query& query);
  void stop_waiting(int client);
  void wake_all(const std::string& key);
  void wake_one(const std::string& key);
  void came(int client, const std::string& key);

  Limits limits_;
  std::unordered_map<int, Client> clients_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;  // none is empty
  std::unordered_map<std::string, std::deque<int>> waiting_;         // by key, the oldest first; none is empty
  std::size_t keys_ = 0;
  std::size_t bytes_ = 0;
  std::size_t unfinished_bytes_ = 0;
  std::size_t awaited_bytes_ = 0;
  std::size_t replied_bytes_ = 0;  // since the newest bytes came
  std::vector<Action> actions_;
};

}  // namespace ddprun::script_store
