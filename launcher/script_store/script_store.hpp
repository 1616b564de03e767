// The store that scripts share, with the semantics of PyTorch's TCPStore, as a machine of bytes: what clients send comes in,
// what they get goes out. launcher/store_process/store_process.cpp is the shell with the sockets. It needs no clock, since
// clients keep their own time and cancel their waits. Everything has a limit (store_query.hpp); a client that breaks one is cut
// off.
//
// Pending data. Three things grow while clients wait: parts of queries, answers that the network has not taken, and keys that
// clients wait for. Each of them alone can be bounded, and a host with many connections still fills the memory. So one bound
// (Limits::pending_bytes) covers all three over all clients:
// - A client whose answers exceed Limits::light_bytes is not served before they are sent. PyTorch's clients read an answer
//   before they send the next query, so only a hostile client notices.
// - A query with a larger answer waits for its turn. The shell calls take_turn() once per pass of its loop, so light queries of
//   other clients are served between two large answers.
// - A large answer is made when it fits into three quarters of the bound, or when no other answer is unsent. Until then its
//   query waits. If that takes long, the shell calls make_room(), which cuts off the client with the largest answer that has
//   read less than Limits::light_bytes since the last call.
// - Above the bound the client with the most pending data is cut off.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
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
  // Of the client's answers this many bytes have left the process.
  void sent(int client, std::size_t bytes);
  // Its waits are dropped, its keys stay.
  void gone(int client);
  // Whether more bytes of this client are wanted now.
  bool is_served(int client) const;

  // The client whose turn it is; nullopt if none waits, or if there is no room for the answer.
  std::optional<int> next_turn() const;
  std::vector<Action> take_turn();
  // Clients wait for a turn, and there is no room.
  bool lacks_room() const { return !line_.empty() && !next_turn(); }
  // Cuts off the client with the largest answer, of those that have read next to nothing since the last call.
  std::vector<Action> make_room();
  std::size_t pending() const { return unfinished_bytes_ + unsent_bytes_ + awaited_cost_; }

 private:
  struct Client {
    std::string input;       // what is there of its next queries
    std::size_t needed = 1;  // how much of that makes it worth a look
    bool is_validated = false;
    bool in_line = false;
    bool waits_for_reader = false;  // its unsent answers keep its next query waiting
    std::size_t read = 0;           // bytes of its answers since the last make_room(), that is, sent to it
    std::size_t next_answer = 0;    // bytes, while it is in line
    std::size_t unsent = 0;         // bytes of its answers
    std::size_t awaited_cost = 0;
    std::unordered_set<std::string> awaits;

    std::size_t pending() const { return input.size() + unsent + awaited_cost; }
  };
  enum class Turn { kNo, kYes };
  // Why a query cannot be served.
  struct Refused {
    std::string why;
  };

  void process(int client, Turn turn);
  void process_or_cut_off(int client, Turn turn);
  void wait_in_line(int number, Client& client, std::size_t next_answer);
  bool has_room_for(std::size_t answer) const;
  std::size_t answer_bytes(const Query& query) const;
  void cut_off(int client, const std::string& why);
  void enforce_bound();
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
  void await(int client, const std::string& key);

  Limits limits_;
  std::unordered_map<int, Client> clients_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;  // none is empty
  std::unordered_map<std::string, std::vector<int>> waiting_;        // by key, the oldest first; none is empty
  std::deque<int> line_;                                             // clients that wait for a turn
  std::size_t keys_ = 0;
  std::size_t bytes_ = 0;
  std::size_t unfinished_bytes_ = 0;
  std::size_t unsent_bytes_ = 0;
  std::size_t awaited_cost_ = 0;
  std::size_t key_bytes_ = 0;  // of the keys of values_
  std::vector<Action> actions_;
};

}  // namespace ddprun::script_store
