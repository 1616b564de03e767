// Answers a query that was sent to all nodes of the job (rendezvous::NodeQuestion): this node's status, the call stacks of its
// workers, the use of its GPUs, lines from the workers' log files, or a stop. launcher/start creates one for a multi-node job;
// one thread.
//
// A query is a JSON object: {"ask":"status"}, {"ask":"gpus"}, {"ask":"stacks","rank":1}, {"ask":"logs"}, {"ask":"stop"},
// {"ask":"stop now"}, or, from the node of rank 0, {"ask":"pace"} (launcher/beside/straggler_look.hpp). Every node obeys the
// stops: a node that stopped alone would merely leave the job, even if it is the coordinator. The answer to "logs" lists the
// node's own ranks; "log lines" is sent to one node only (log_readers.hpp). An answer is a JSON object of at most as many bytes
// as the query allows. If the node is busy or does not know the query, the answer has an "error".
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>

#include "common/system/file_queue.hpp"
#include "launcher/asked/log_readers.hpp"
#include "launcher/hang/stack_tool.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun {

class NodeAsked {
 public:
  struct Facts {
    std::string host;
    bool python = false;           // the workers are Python
    std::filesystem::path logs{};  // the folder of their log files
    bool writes_logs = false;      // whether the workers have log files
  };
  struct Hooks {
    std::function<std::string(std::size_t most_bytes)> status;
    std::function<std::vector<std::pair<int, std::int64_t>>()> workers;  // rank and pid of the running workers
    std::function<OwnRanks()> own;                                       // ranks in the round; none before the first one
    std::function<std::int64_t()> round;
    std::function<void(bool now)> stop;
    std::function<void(std::function<void(const nlohmann::json&)> then)> gpus;  // {"gpus":[...]}
    std::function<nlohmann::json(std::size_t most_bytes)> pace;                 // step times of this node's ranks
    std::function<void(rendezvous::NodeAnswer)> answer;
  };
  NodeAsked(boost::asio::io_context& io, FileQueue& files, Facts facts, Hooks hooks);

  void hear(rendezvous::NodeQuestion question);

 private:
  // Reads the stacks of one worker after the other, for one query at a time.
  struct Stacks {
    rendezvous::NodeQuestion question;
    StackTool tool;
    std::vector<std::pair<int, std::int64_t>> waiting;  // in reverse order: the next one is at the end
    nlohmann::json found = nlohmann::json::array();
    std::size_t bytes = 0;
    int left_out = 0;
    std::chrono::steady_clock::time_point until{};
    std::unique_ptr<StackRun> run;
  };

  void answer(const rendezvous::NodeQuestion& question, nlohmann::json text);
  void begin_stacks(const rendezvous::NodeQuestion& question, std::optional<int> rank);
  void next_stack();

  boost::asio::io_context& io_;
  FileQueue& files_;
  Facts facts_;
  Hooks hooks_;
  LogReaders logs_;
  std::optional<Stacks> stacks_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // callbacks in queues may outlive this object
};

}  // namespace ddprun
