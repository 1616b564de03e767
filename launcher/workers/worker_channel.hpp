// The agent's end of one worker channel. It converts between bytes of the socket and messages.
// launcher/agent/worker_supervisor.cpp creates one for each worker in each round. If a channel is closed, no more messages
// arrive. But the worker need not have ended (decision 7, docs/internals/decisions/guardian/descriptors.md).
//
// How it goes wrong. A script may use the channel wrongly, and the agent must survive this:
// - The worker sends faster than the agent reads. One event reads at most 256 KiB, so other workers are not delayed.
// - The worker does not read. The queue to it is limited to 64 MiB, and beyond that the worker is ignored.
// - The worker sends invalid bytes or uses a different major version. The worker is ignored, but its bytes are still read and
//   dropped. If we closed the socket instead, the worker's next write would kill the worker with SIGPIPE.
// - A wrapper passes the channel to its child process. take_channel_pid() returns the pid of the process that really uses it.
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
  // The channel calls this after a protocol violation. The worker's bytes are then ignored.
  using OnBroken = std::function<void(const std::string& why)>;

  // Takes ownership of `fd`, a connected Unix stream socket. If a worker's Hello has a different major version, only that
  // Hello is passed to `on_message`. After that, and after a protocol violation, the worker's bytes are read and dropped. The
  // worker reads end of file from the channel.
  WorkerChannel(boost::asio::io_context& io, int fd, OnMessage on_message, OnBroken on_broken);

  void start();
  void send(const channel::FromAgent& message);
  // Reads the messages that have already arrived and passes them to `on_message`. Call this when the worker has ended, so that
  // the agent processes the worker's last messages before the worker's end.
  void drain();
  void close();
  // At the first call, returns the pid of the process that sent the first bytes; later calls return 0. This process may differ
  // from the started one: a start script passes the channel on to its child processes.
  pid_t take_channel_pid() { return std::exchange(channel_pid_, 0); }

 private:
  ssize_t receive(std::span<std::byte> buffer);
  enum class More { kLater, kNever };
  void wait();
  More read_available(std::size_t most);
  void on_bytes(std::span<const std::byte> bytes);
  void stop_reading();
  void write_next();

  boost::asio::local::stream_protocol::socket socket_;
  channel::Decoder decoder_;
  OnMessage on_message_;
  OnBroken on_broken_;
  std::deque<std::string> outbox_;
  std::size_t outbox_bytes_ = 0;
  bool reading_stopped_ = false;
  bool knows_channel_pid_ = false;
  pid_t channel_pid_ = 0;
};

}  // namespace ddprun
