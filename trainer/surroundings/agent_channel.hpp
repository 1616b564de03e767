// The worker's end of the worker channel: a reader thread dispatches the agent's messages, and any thread may send. The loss of
// the agent is not fatal here, since the guardian ends the worker if necessary. Sends then do nothing, and store requests
// throw.
#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <memory>

#include "common/channel/message.hpp"

namespace ddprun::trainer {

class AgentChannel {
 public:
  using Handler =
      std::function<void(const channel::FromAgent&)>;  // all but StoreReply; called on the reader thread, must not block

  // Takes ownership of the descriptor (sets CLOEXEC, closes it at the end) and sends Hello. `on_gone` is called at most once,
  // on the reader thread, when the agent is gone.
  AgentChannel(int fd, channel::Hello hello, Handler on_message, std::function<void()> on_gone = {});
  ~AgentChannel();
  AgentChannel(const AgentChannel&) = delete;
  AgentChannel& operator=(const AgentChannel&) = delete;

  void send(const channel::FromWorker& message) noexcept;
  // Assigns the id, sends the request and waits for the answer. Thread-safe; several requests may wait. Throws
  // std::runtime_error if the agent is gone, and while it holds this worker between two rounds. Also throws it when the agent
  // orders a newer generation than that of the request's group.
  channel::StoreReply request(channel::StoreRequest request, int generation = kAnyGeneration);
  static constexpr int kAnyGeneration = std::numeric_limits<int>::max();
  bool connected() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
