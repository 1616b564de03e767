// Answers queries of other nodes for the logs of this node's workers. NodeQueryHandler owns one LogTailer. Use it on one thread
// only.
//
// The answer to {"ask":"log lines",...} (log_protocol.hpp) contains the next bytes of the files. If there are no new bytes and
// the query has "follow", the answer is delayed until a worker has written new bytes. The client sends a new query for each
// further answer. So the client never receives more than it can handle, and the node keeps no state for a client that has
// left.
//
// Logs must not disturb the job, since heartbeats use the same connections. At most 8 queries wait in this class, each for at
// most 5 s. The node sends at most one answer in 10 ms, and an answer has at most 32 KiB. The queue's thread reads the files.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "common/system/file_queue.hpp"
#include "launcher/query/cluster/log_protocol.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun {

class LogTailer {
 public:
  static constexpr std::size_t kMaxReaders = 8;
  static constexpr std::uint32_t kMaxBytes = 32u << 10;  // maximum size of an answer
  static constexpr std::chrono::milliseconds kMinInterval{10};
  static constexpr std::chrono::milliseconds kMaxWait{5000};

  struct Node {
    virtual LocalRanks local_ranks() const = 0;  // this node's ranks in the current round; count is 0 before the first round
    virtual std::int64_t round() const = 0;      // -1 before the first round

   protected:
    ~Node() = default;
  };
  using Answer = std::function<void(const rendezvous::NodeQuery&, nlohmann::json)>;
  LogTailer(boost::asio::io_context& io, FileQueue& files, std::filesystem::path logs, const Node& node, Answer answer);
  ~LogTailer();
  LogTailer(const LogTailer&) = delete;
  LogTailer& operator=(const LogTailer&) = delete;

  void receive(const rendezvous::NodeQuery& question, const nlohmann::json& query);

 private:
  struct Reader;
  void poll(std::uint64_t number);
  void read(std::uint64_t number);
  void evaluate(std::uint64_t number, const LogBytes& bytes);
  void answer(std::uint64_t number, const LogBytes& bytes);

  boost::asio::io_context& io_;
  FileQueue& files_;
  std::filesystem::path logs_;
  const Node& node_;
  Answer answer_;
  std::uint64_t next_number_ = 0;
  std::map<std::uint64_t, std::unique_ptr<Reader>> readers_;
  std::chrono::steady_clock::time_point not_before_{};     // earliest time of the next answer; see kMinInterval
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // work in the queue may outlive this object
};

}  // namespace ddprun
