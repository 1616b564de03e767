// The worker's end of the worker channel: a reader thread that dispatches what the agent says, and senders that may be any
// thread. Losing the agent is not fatal here (the guardian ends us if need be): sends become no-ops and store requests throw.
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

  // Takes over the descriptor (sets CLOEXEC, closes it at the end) and sends Hello. `on_gone`: the agent is gone, called once
  // at most, on the reader thread.
  AgentChannel(int fd, channel::Hello hello, Handler on_message, std::function<void()> on_gone = {});
  ~AgentChannel();
  AgentChannel(const AgentChannel&) = delete;
  AgentChannel& operator=(const AgentChannel&) = delete;

  void send(const channel::FromWorker& message) noexcept;
  // Fills in the id, sends, waits for the answer. Thread-safe, several at once. Throws std::runtime_error when the agent is
  // gone, as soon as it orders a regroup whose generation is newer than that of the group the request is for, and while it
  // holds this worker between two rounds.
  channel::StoreReply request(channel::StoreRequest request, int generation = kAnyGeneration);
  static constexpr int kAnyGeneration = std::numeric_limits<int>::max();
  bool connected() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
