// The store for scripts, with the protocol and the semantics of PyTorch's TCPStore. It is a pure state machine: its input is
// bytes from clients, and its output is bytes for clients. launcher/tcp_store/store_process.cpp owns the sockets.
// store_query.hpp parses the queries and defines the limits. A client that exceeds a limit is disconnected, and the other
// clients continue.
//
// The problem. The ranks of a script exchange addresses through a TCPStore. If rank 0 hosts the store, the store dies with rank
// 0. So a separate process, a child of the guardian, serves it at MASTER_PORT. Other programs can reach this port too. So no
// client must be able to exhaust the memory or delay the other clients.
//
// How it goes wrong. The protocol has no timeouts: a client waits, and cancels its wait when its own timeout expires. So the
// store needs no clock, but it must store data for clients that wait. Three kinds of such pending data can grow: incomplete
// queries, replies that the socket has not accepted, and keys for which clients wait. A limit per client is not enough, since
// many clients together could still exhaust the memory. Time is a second problem: a query of a few bytes can request a reply of
// 64 MiB, and sending it would delay the other clients.
//
// The idea. One limit (Limits::pending_bytes) applies to the sum of all pending data over all clients:
// - A client may have more than Limits::light_bytes of unsent replies. The store then processes its next query only after the
//   client has read enough. PyTorch's clients read each reply before they send the next query, so this never delays them.
// - A query with a reply larger than light_bytes waits in a queue for its turn. The server process calls take_turn() once per
//   pass of its loop. So it processes queries of other clients between two large replies.
// - The first query in the queue gets its turn if pending data and the new reply together are at most three quarters of the
//   limit. It also gets its turn if all other replies have been sent. If this query has waited for a second, the server
//   process calls free_space(). This disconnects one stalled client, which has read less than light_bytes since the last call.
//   If several clients are stalled, the one with the most unsent bytes is disconnected.
// - If pending data exceeds the limit, the client with the most pending data is disconnected.
//
// An example: the limit is 400 bytes, light_bytes is 50 bytes, and the value of "big" is 100 bytes long.
//
//     clients 1 and 2   get "big"     each gets its turn, and a reply of 108 bytes, which it does not read
//     client 3          get "big"     is queued, since 216 + 108 bytes are more than 300, three quarters of the limit
//     client 4          get "small"   gets its reply immediately, since it is smaller than light_bytes
//     free_space()                     client 1 has read 60 bytes, so client 2 is disconnected; client 3 gets its turn
//
// The cost: valid clients are disconnected if together they send more than 256 MiB of incomplete queries at the same time. The
// store of ddptrain's workers (rendezvous/channel_store) could not be used. Its requests are messages of the worker channel,
// and each request contains a timeout. It has no append, queues, barriers or lists of keys.
// docs/internals/decisions/launcher/script-store.md is the record of this decision.
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

#include "launcher/tcp_store/store_contents.hpp"
#include "launcher/tcp_store/store_query.hpp"

namespace ddprun::script_store {

struct Send {
  int client = 0;
  std::string bytes;
};
// The store has dropped this client, so the caller must close the connection. `why` is for a message to the user.
struct Disconnect {
  int client = 0;
  std::string why;
};
using Action = std::variant<Send, Disconnect>;

class ScriptStore {
 public:
  explicit ScriptStore(Limits limits = {}) : limits_(limits) {}

  // Adds a client. The caller chooses its number, which may be used again after gone() or Disconnect.
  void connected(int client);
  std::vector<Action> received(int client, std::string_view bytes);
  // Call this when the client's socket has accepted `bytes` more bytes of replies.
  void sent(int client, std::size_t bytes);
  // Call this when the client has disconnected. The client then no longer waits for keys, but the keys that it has set remain.
  void gone(int client);
  // Returns true if the store can process another query of this client now. If false, the caller should not read from the
  // client.
  bool is_served(int client) const;

  // Large replies are sent one at a time. Returns the first client in the queue for a large reply. Returns nullopt if the queue
  // is empty, or if the pending data leaves no space for this reply.
  std::optional<int> next_turn() const;
  // Processes the query of the client next_turn(). Has no effect if next_turn() returns nullopt.
  std::vector<Action> take_turn();
  // Returns true if clients wait for a large reply and there is no space for the next one.
  bool lacks_space() const { return !turn_queue_.empty() && !next_turn(); }
  // Disconnects one stalled client, to make space for large replies. A client is stalled if it has unsent bytes and has read
  // less than light_bytes since the last call. If several clients are stalled, the client with the most unsent bytes is
  // disconnected. The call has no effect if no client is stalled.
  std::vector<Action> free_space();
  // Returns the number of bytes that count towards Limits::pending_bytes.
  std::size_t pending() const { return unfinished_bytes_ + unsent_bytes_ + awaited_cost_; }

 private:
  struct Client {
    std::string input;       // received bytes that are not processed yet
    std::size_t needed = 1;  // `input` needs at least this many bytes to contain a complete query
    bool is_validated = false;
    bool waits_for_turn = false;
    bool waits_for_reader = false;  // true: this client must read its replies before its next query is processed
    std::size_t read = 0;           // bytes of replies that the client has read since the last free_space()
    std::size_t next_answer = 0;    // if waits_for_turn: size of the reply to the queued query
    std::size_t unsent = 0;         // bytes of replies that the client's socket has not accepted yet
    std::size_t awaited_cost = 0;
    std::unordered_set<std::string> awaits;

    std::size_t pending() const { return input.size() + unsent + awaited_cost; }
  };
  enum class Turn { kNo, kYes };

  void process(int client, Turn turn);
  void process_or_cut_off(int client, Turn turn);
  void wait_for_turn(int number, Client& client, std::size_t next_answer);
  bool has_space_for(std::size_t answer) const;
  void cut_off(int client, const std::string& why);
  void enforce_bound();
  void handle(int client, const Query& query);
  void reply(int client, std::string bytes);
  void wait_for(int client, const std::vector<std::string_view>& keys);
  void join_barrier(int client, const Query& query);
  void stop_waiting(int client);
  void wake_all(const std::string& key);
  void wake_one(const std::string& key);
  void key_arrived(int client, const std::string& key);
  void await(int client, const std::string& key);

  Limits limits_;
  StoreContents contents_{limits_};
  std::unordered_map<int, Client> clients_;
  // For each key, the clients that wait for it, oldest first. Keys without waiting clients are not in the map.
  std::unordered_map<std::string, std::vector<int>> waiting_;
  std::deque<int> turn_queue_;  // clients that wait to get a large reply, oldest first
  std::size_t unfinished_bytes_ = 0;
  std::size_t unsent_bytes_ = 0;
  std::size_t awaited_cost_ = 0;
  std::vector<Action> actions_;
};

}  // namespace ddprun::script_store
