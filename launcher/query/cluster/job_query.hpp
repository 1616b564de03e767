// Sends a query to all nodes of a job, or to one of them, and gathers the answers. The rendezvous delivers the query
// (rendezvous::ClusterQuery). The caller gets the answers when all nodes have answered, or when the time limit has expired.
// While there is no query, the class does no work. launcher/launch creates a JobQuery for a multi-node job. Use it on one
// thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/protocol/message.hpp"

namespace ddprun {

// Returns the maximum size in bytes of one node's answer. The more nodes there are, the smaller this size is, so that the sum
// of all answers is limited.
std::uint32_t max_answer_bytes(int nodes);

// name_of() returns the text form of a node's identity in queries, and node_of() parses it. node_of() returns nullopt for any
// other text.
std::string name_of(const rendezvous::NodeId& node);
std::optional<rendezvous::NodeId> node_of(std::string_view name);

// The answers to one query. The code is pure: no I/O, no clock.
class GatheredAnswers {
 public:
  // With `single_node`, only one node is queried. The query is then complete after one answer, even if the answer reports that
  // the node is not in the job.
  explicit GatheredAnswers(bool single_node = false) : single_node_(single_node) {}
  // Returns true if the query is complete, that is, if all nodes of the job have answered. Ignores the second answer of a node,
  // and an answer that is not a JSON object.
  bool add(const rendezvous::JobAnswer& answer);
  // Returns {"answered":2,"of":3,"answers":[...],"nodes":["their names",...]} on one line. "of" is the number of nodes in the
  // job; it is 0 if no node has answered.
  std::string json() const;

 private:
  bool single_node_;
  std::map<rendezvous::NodeId, std::string> texts_;
  int node_count_ = 0;
};

class JobQuery {
 public:
  using Send = std::function<void(rendezvous::ClusterQuery)>;
  using Then = std::function<void(std::string json)>;

  // `first_number` is the number of the first query. It must differ from the numbers used by earlier processes with this
  // node's identity. A late answer to a query of such a process may still arrive.
  JobQuery(boost::asio::io_context& io, std::uint64_t first_number, Send send);

  struct Request {
    std::string text;
    int nodes = 1;  // number of nodes expected to answer
    std::chrono::milliseconds within{};
    std::optional<rendezvous::NodeId> to{};  // the only node that is queried; nullopt: all nodes
    std::uint32_t max_bytes = 0;             // maximum size of each answer; 0: max_answer_bytes() decides
  };
  // At most 8 queries to all nodes and 16 queries to single nodes may be pending. Further queries are refused with
  // {"error":...}.
  void query(Request question, Then then);
  void receive(const rendezvous::JobAnswer& answer);

 private:
  struct Open {
    GatheredAnswers gathered;
    boost::asio::steady_timer timer;
    Then then;
    bool single_node = false;
  };
  void finish(std::uint64_t number);

  boost::asio::io_context& io_;
  std::uint64_t next_number_;
  Send send_;
  std::map<std::uint64_t, Open> open_;
};

}  // namespace ddprun
