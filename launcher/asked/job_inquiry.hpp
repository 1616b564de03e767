// The end of somebody who asks all nodes of a job something, or one of them: it puts the question to the job
// (rendezvous::JobQuestion), counts the nodes that answer, and hands over what has come when all have answered or the time is
// over. Nothing runs unless somebody asks. launcher/start makes one for a job on many machines; one thread.
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

// How many bytes each of that many nodes may answer, so that all answers together stay small.
std::uint32_t most_bytes_of_each(int nodes);

// A node as people's questions name it, and back; nothing for another text.
std::string name_of(const rendezvous::NodeId& node);
std::optional<rendezvous::NodeId> node_of(std::string_view name);

// The answers to one question. Pure.
class GatheredAnswers {
 public:
  // `of_one`: one node is asked, and its answer ends the question, also that it is not here.
  explicit GatheredAnswers(bool of_one = false) : of_one_(of_one) {}
  // True: all nodes that are here have answered. A node's second answer, and one that is no JSON object, count for nothing.
  bool add(const rendezvous::JobAnswer& answer);
  // {"answered":2,"of":3,"answers":[...],"nodes":["their names",...]}, on one line. `of` is 0 when nobody has answered.
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
    int nodes = 1;  // that are expected
    std::chrono::milliseconds within{};
    std::optional<rendezvous::NodeId> to{};  // the only node that is asked
    std::uint32_t most_bytes = 0;            // of each answer; 0: as most_bytes_of_each() says
  };
  // More than 8 questions to all nodes, and more than 16 to single ones, are refused at a time with {"error":...}.
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
