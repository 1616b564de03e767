// Answers queries of other nodes for the logs of this node's workers. The answer to {"ask":"log lines",...} (log_words.hpp) has
// the next bytes of the files. If there are none and the query follows, the answer waits until some are written. Each
// continuation is a new query, so a client never gets more than it has consumed, and no state is kept for a client that has
// left.
//
// Logs must not disturb the job, since its heartbeats use the same connections. At most 8 queries wait here, each for 5 s. A
// node sends at most one answer in 10 ms, of at most 32 KiB. Files are read on the queue's thread. NodeAsked owns one; one
// thread.
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
#include "launcher/asked/log_words.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun {

class LogReaders {
 public:
  static constexpr std::size_t kMostReaders = 8;
  static constexpr std::uint32_t kMostBytes = 32u << 10;  // per answer
  static constexpr std::chrono::milliseconds kBetween{10};
  static constexpr std::chrono::milliseconds kLongestWait{5000};

  struct Hooks {
    std::function<OwnRanks()> own;  // ranks in this round; none before the first one
    std::function<std::int64_t()> round;
    std::function<void(const rendezvous::NodeQuestion&, nlohmann::json)> answer;
  };
  LogReaders(boost::asio::io_context& io, FileQueue& files, std::filesystem::path logs, Hooks hooks);
  ~LogReaders();
  LogReaders(const LogReaders&) = delete;
  LogReaders& operator=(const LogReaders&) = delete;

  void hear(const rendezvous::NodeQuestion& question, const nlohmann::json& asked);

 private:
  struct Reader;
  void look(std::uint64_t number);
  void read(std::uint64_t number);
  void judge(std::uint64_t number, const LogBytes& bytes);
  void answer(std::uint64_t number, const LogBytes& bytes);

  boost::asio::io_context& io_;
  FileQueue& files_;
  std::filesystem::path logs_;
  Hooks hooks_;
  std::uint64_t next_number_ = 0;
  std::map<std::uint64_t, std::unique_ptr<Reader>> readers_;
  std::chrono::steady_clock::time_point not_before_{};     // earliest time of the next answer
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // work in the queue may outlive this object
};

}  // namespace ddprun
