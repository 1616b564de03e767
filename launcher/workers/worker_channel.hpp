// The agent's end of one worker's channel. It converts between bytes of the socket and messages. The queue to a worker that
// does not read is bounded. launcher/agent/round_workers.cpp creates one for each worker and round. A closed channel means that
// no more messages arrive; it does not mean that the worker is dead (decision 7).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "common/channel/codec.hpp"
#include "common/channel/message.hpp"

namespace ddprun {

class WorkerChannel : public std::enable_shared_from_this<WorkerChannel> {
 public:
  using OnMessage = std::function<void(const channel::FromWorker&)>;
  using OnBroken = std::function<void(const std::string& why)>;  // the worker broke the protocol and is ignored from now on

  // If a worker's Hello has another major version, only that Hello is passed on. Bytes from an ignored worker are read and
  // dropped, and the worker sees the end of the channel. Takes ownership of `fd`, a connected Unix stream socket.
  WorkerChannel(boost::asio::io_context& io, int fd, OnMessage on_message, OnBroken on_broken);

  void start();
  void send(const channel::FromAgent& message);
  // Passes on all messages that have arrived. Called when the worker has ended, so that its last messages are handled before
  // its end.
  void drain();
  void close();
  // The pid of the process that sent the first bytes; returned once, then 0. It may differ from the process that we started,
  // since a start script passes the channel on to its children.
  pid_t take_speaker() { return std::exchange(speaker_, 0); }

 private:
  ssize_t receive(std::span<std::byte> room);
  enum class More { kLater, kNever };
  void wait();
  More read_available(std::size_t most);
  void hear(std::span<const std::byte> bytes);
  void go_deaf();
  void write_next();

  boost::asio::local::stream_protocol::socket socket_;
  channel::Decoder decoder_;
  OnMessage on_message_;
  OnBroken on_broken_;
  std::deque<std::string> outbox_;
  std::size_t outbox_bytes_ = 0;
  bool deaf_ = false;
  bool knows_speaker_ = false;
  pid_t speaker_ = 0;
};

}  // namespace ddprun
