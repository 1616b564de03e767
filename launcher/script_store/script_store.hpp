// The store of scripts, with the protocol and semantics of PyTorch's TCPStore, as a pure machine of bytes: bytes of clients
// come in, bytes for clients go out. launcher/store_process/store_process.cpp is the shell with the sockets. store_query.hpp
// parses queries and has the limits. A client that breaks a limit is cut off, and the others continue.
//
// The problem. The ranks of a script exchange addresses through a TCPStore. If rank 0 hosts it, it dies with rank 0. So a
// process below the guardian serves it at MASTER_PORT. Other programs can reach that port. One client must not exhaust the
// memory or delay the others.
//
// How it goes wrong. The protocol has no timeouts: a client waits, and cancels the wait when its own time is over. So the store
// needs no clock, but it holds data while clients wait. Three kinds of pending data grow: parts of queries, answers that the
// network has not taken, and awaited keys. A bound for each client alone is not enough: many connections still fill the memory.
// And a query of a few bytes can demand an answer of 64 MiB, which would delay the others.
//
// The idea. One bound (Limits::pending_bytes) covers all three kinds over all clients:
// - A client with more than Limits::light_bytes of unsent answers is not served until they shrink to that. PyTorch's clients
//   read an answer before they send the next query, so only a hostile client notices.
// - A query with a larger answer waits for its turn. The shell calls take_turn() once per pass of its loop. Light queries of
//   other clients are served between two large answers.
// - A large answer is built if the pending data with it stays within three quarters of the bound. It is also built if no other
//   answer is unsent. Otherwise its query waits. If that takes long, the shell calls make_room(). A client stands still if it
//   has read less than Limits::light_bytes since the last call. make_room() cuts off the one of these with the most unsent
//   bytes.
// - Above the bound, the client with the most pending data is cut off.
//
// An example: the bound is 400 bytes, light_bytes is 50, and the value of "big" has 100 bytes.
//
//     clients 1 and 2   get "big"     each takes a turn and gets 108 bytes, which it does not read
//     client 3          get "big"     with 108 more, pending data exceeds three quarters of 400: it waits in line
//     client 4          get "small"   is served immediately, since its answer is light
//     make_room()                     client 1 has read 60 bytes meanwhile; client 2 is cut off, and client 3 gets its turn
//
// The cost. Honest clients are cut off if they together send over 256 MiB of unfinished values at the same time. What was
// tried. rendezvous/store, the store of ddptrain's workers, does not fit. Its requests belong to the worker channel, and each
// has a timeout. TCPStore also has appends, queues, barriers and lists of keys. The record is
// docs/internals/decisions/launcher/script-store.md.
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
// The store has disconnected the client. `why` is text for a message.
struct Disconnect {
  int client = 0;
  std::string why;
};
using Action = std::variant<Send, Disconnect>;

class ScriptStore {
 public:
  explicit ScriptStore(Limits limits = {}) : limits_(limits) {}

  // The caller chooses a client's number. It may reuse the number after gone() or Disconnect.
  void connected(int client);
  std::vector<Action> received(int client, std::string_view bytes);
  // The socket has taken this many bytes of the client's answers.
  void sent(int client, std::size_t bytes);
  // The client has disconnected. Its waits are dropped, its keys stay.
  void gone(int client);
  // Whether the shell should read more bytes from this client.
  bool is_served(int client) const;

  // The first client in line; nullopt if the line is empty or there is no room for its answer.
  std::optional<int> next_turn() const;
  std::vector<Action> take_turn();
  // True if clients wait for a turn and there is no room for the next answer.
  bool lacks_room() const { return !line_.empty() && !next_turn(); }
  // Cuts off a client that has read almost nothing since the last call: the one with the most unsent bytes.
  std::vector<Action> make_room();
  std::size_t pending() const { return unfinished_bytes_ + unsent_bytes_ + awaited_cost_; }

 private:
  struct Client {
    std::string input;       // received bytes of queries that are not served yet
    std::size_t needed = 1;  // with fewer bytes of input the next query is incomplete
    bool is_validated = false;
    bool in_line = false;
    bool waits_for_reader = false;  // its unsent answers keep its next query waiting
    std::size_t read = 0;           // bytes of its answers that were sent since the last make_room()
    std::size_t next_answer = 0;    // size of the answer that waits for a turn, while in_line
    std::size_t unsent = 0;         // bytes of its answers that the socket has not taken
    std::size_t awaited_cost = 0;
    std::unordered_set<std::string> awaits;

    std::size_t pending() const { return input.size() + unsent + awaited_cost; }
  };
  enum class Turn { kNo, kYes };
  // Thrown for a query that cannot be served; the client is then cut off.
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
  void set_value(const std::string& key, std::string_view value);  // wakes no waiter
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
  std::unordered_map<std::string, std::deque<std::string>> queues_;  // no queue is empty
  std::unordered_map<std::string, std::vector<int>> waiting_;        // waiting clients by key, oldest first; no list is empty
  std::deque<int> line_;                                             // clients that wait for a turn
  std::size_t keys_ = 0;
  std::size_t bytes_ = 0;
  std::size_t unfinished_bytes_ = 0;
  std::size_t unsent_bytes_ = 0;
  std::size_t awaited_cost_ = 0;
  std::size_t key_bytes_ = 0;  // total size of the keys in values_
  std::vector<Action> actions_;
};

}  // namespace ddprun::script_store
