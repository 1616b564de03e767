// The worker's end of the worker channel. A reader thread dispatches the agent's messages, and any thread may send. A worker
// does not exit when the agent closes the channel, since the guardian process kills the worker if necessary. After the channel
// is closed, send() does nothing, and request() throws.
#pragma once

#include <functional>
#include <limits>
#include <memory>

#include "common/channel/message.hpp"

namespace ddprun::trainer {

class AgentChannel {
 public:
  // The reader thread calls the handler with every message except StoreReply. So the handler must not block.
  using Handler = std::function<void(const channel::FromAgent&)>;

  // Takes ownership of the descriptor `fd`, sets its CLOEXEC flag, and sends `hello`. `on_gone` is called at most once, on the
  // reader thread, when the agent has closed the channel.
  AgentChannel(int fd, channel::Hello hello, Handler on_message, std::function<void()> on_gone = {});
  ~AgentChannel();
  AgentChannel(const AgentChannel&) = delete;
  AgentChannel& operator=(const AgentChannel&) = delete;

  // Sends a diagnostic message. Drops it without an error if the channel is closed. Any thread may call this.
  void send(const channel::FromWorker& message) noexcept;
  // Sends a store request with a new id and waits for its reply. Several threads may wait for replies at the same time. Throws
  // std::runtime_error in three cases: the agent has closed the channel; the agent has requested that this worker waits for
  // the next round (Hold); or the agent has requested a process group that is newer than `generation`, the number of the
  // caller's group.
  channel::StoreReply request(channel::StoreRequest request, int generation = kAnyGeneration);
  static constexpr int kAnyGeneration = std::numeric_limits<int>::max();
  bool connected() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
