// Answers what people on other nodes ask about the logs of this node's workers: {"ask":"log lines",...} (log_words.hpp) by the
// next bytes of the files, and a question that follows, when there are none, as soon as some come. What follows is a new
// question each time, so nobody gets more than he has taken, and nothing is kept for somebody who has gone.
//
// Logs must not disturb the job, whose heartbeats take the same connections. At most 8 questions wait here, each for 5 s; a
// node sends an answer in 10 ms at most, of 32 KiB. Files are read on the queue's thread. NodeAsked owns one; one thread.
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
  static constexpr std::uint32_t kMostBytes = 32u << 10;  // of an answer
  static constexpr std::chrono::milliseconds kBetween{10};
  static constexpr std::chrono::milliseconds kLongestWait{5000};

  struct Hooks {
    std::function<OwnRanks()> own;  // of this round; none before the first one
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
  std::chrono::steady_clock::time_point not_before_{};     // the next answer
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // work in the queue may outlive this object
};

}  // namespace ddprun
