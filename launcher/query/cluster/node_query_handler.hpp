// Answers a query that reaches this node through the rendezvous (rendezvous::NodeQuery): the node's status, the call stacks of
// its workers, the usage of its GPUs, or lines of the workers' log files. A query can also stop the job. launcher/launch
// creates one handler for a multi-node job. Use it on one thread only.
//
// A query is a JSON object: {"ask":"status"}, {"ask":"gpus"}, {"ask":"stacks","rank":1}, {"ask":"logs"}, {"ask":"stop"},
// {"ask":"stop now"}, or, from the node of rank 0, {"ask":"pace"} (launcher/stragglers/straggler_monitor.hpp). A stop of the
// job is sent to every node. A stop that is sent to a single node makes only this node leave the job, even if it is the
// coordinator. The answer to "logs" lists the node's own ranks; "log lines" is sent to one node only (log_tailer.hpp). An
// answer is a JSON object within the size limit of the query. If the node is busy or does not know the query, the answer
// contains "error".
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
#include "launcher/hang/stack_tool.hpp"
#include "launcher/query/cluster/log_tailer.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun {

class NodeQueryHandler {
 public:
  struct Facts {
    std::string host;
    bool python = false;           // the workers are Python processes
    std::filesystem::path logs{};  // the directory of the workers' log files
    bool writes_logs = false;      // the workers have log files
  };
  struct Node : LogTailer::Node {
    virtual std::string status(std::size_t max_bytes) const = 0;
    virtual std::vector<std::pair<int, std::int64_t>> running_workers() const = 0;  // rank and pid of each running worker
    virtual void stop(bool now) = 0;
    virtual void probe_gpus(std::function<void(const nlohmann::json&)> then) = 0;  // `then` receives {"gpus":[...]}
    virtual nlohmann::json take_paces(std::size_t max_bytes) = 0;                  // step times of this node's ranks
    virtual void answer(rendezvous::NodeAnswer answer) = 0;

   protected:
    ~Node() = default;
  };
  NodeQueryHandler(boost::asio::io_context& io, FileQueue& files, Facts facts, Node& node);

  void receive(rendezvous::NodeQuery question);

 private:
  // The state of a "stacks" query. Only one such query runs at a time. It reads the stack of one worker after another.
  struct Stacks {
    rendezvous::NodeQuery question;
    StackTool tool;
    // (rank, pid) of the workers whose stacks are still to be read, in reverse order: the next one is at the back
    std::vector<std::pair<int, std::int64_t>> waiting;
    nlohmann::json found = nlohmann::json::array();
    std::size_t bytes = 0;
    int left_out = 0;
    std::chrono::steady_clock::time_point until{};
    std::unique_ptr<StackRun> run;
  };

  void answer(const rendezvous::NodeQuery& question, nlohmann::json text);
  void begin_stacks(const rendezvous::NodeQuery& question, std::optional<int> rank);
  void next_stack();

  boost::asio::io_context& io_;
  FileQueue& files_;
  Facts facts_;
  Node& node_;
  LogTailer logs_;
  std::optional<Stacks> stacks_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // callbacks in queues may outlive this object
};

}  // namespace ddprun
