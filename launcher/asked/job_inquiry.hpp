// The querying side of a query to all nodes of a job, or to one of them. It sends the query to the job
// (rendezvous::JobQuestion), counts the nodes that answer, and returns the answers when all have answered or the time is over.
// Nothing runs unless there is a query. launcher/start creates one for a multi-node job; one thread.
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

// The maximum answer size per node in bytes, so that all answers of `nodes` nodes together stay small.
std::uint32_t most_bytes_of_each(int nodes);

// The name of a node in queries, and its parser, which returns nullopt for any other text.
std::string name_of(const rendezvous::NodeId& node);
std::optional<rendezvous::NodeId> node_of(std::string_view name);

// The answers to one question. Pure.
class GatheredAnswers {
 public:
  // `of_one`: only one node is queried. Its answer completes the query, even if it says that the node is not in the job.
  explicit GatheredAnswers(bool of_one = false) : of_one_(of_one) {}
  // Returns true if all present nodes have answered. A node's second answer, and an answer that is not a JSON object, are
  // ignored.
  bool add(const rendezvous::JobAnswer& answer);
  // {"answered":2,"of":3,"answers":[...],"nodes":["their names",...]}, on one line. `of` is 0 if no node has answered.
  std::string json() const;

 private:
  bool of_one_;
  std::map<rendezvous::NodeId, std::string> texts_;
  int of_ = 0;
};

class JobInquiry {
 public:
  using Put = std::function<void(rendezvous::JobQuestion)>;
  using Then = std::function<void(std::string json)>;

  // `first_number` must differ from those of earlier processes with this node's identity.
  JobInquiry(boost::asio::io_context& io, std::uint64_t first_number, Put put);

  struct Question {
    std::string text;
    int nodes = 1;  // number of expected nodes
    std::chrono::milliseconds within{};
    std::optional<rendezvous::NodeId> to{};  // the only node that is queried
    std::uint32_t most_bytes = 0;            // maximum size of each answer; 0: most_bytes_of_each() decides
  };
  // At most 8 queries to all nodes and 16 to single nodes may be pending. Further ones are refused with {"error":...}.
  void ask(Question question, Then then);
  void hear(const rendezvous::JobAnswer& answer);

 private:
  struct Open {
    GatheredAnswers gathered;
    boost::asio::steady_timer timer;
    Then then;
    bool of_one = false;
  };
  void finish(std::uint64_t number);

  boost::asio::io_context& io_;
  std::uint64_t next_number_;
  Put put_;
  std::map<std::uint64_t, Open> open_;
};

}  // namespace ddprun
