// Waits until the agent assigns a rank to a standby (ddprun --standby), a worker process that was started without a rank.
// Before the wait, trainer/life/process.cpp loads everything that does not depend on the rank. So a standby can replace a lost
// worker without loading time. The class is thread-safe: the channel's reader thread delivers the message to the waiting main
// thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "common/channel/message.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

class Standby {
 public:
  // Call this on the reader thread of the worker channel. The call may come before wait().
  void on_message(const channel::FromAgent& message);
  void on_agent_gone();

  // Returns the assigned rank. Throws std::runtime_error if the agent closes the channel first.
  channel::AssignRank wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<channel::AssignRank> assignment_;
  bool agent_gone_ = false;
};

// Writes the assigned rank to `environment`. Throws std::runtime_error if the rank is out of range for the job.
void take_place(WorkerEnvironment& environment, const channel::AssignRank& assignment);

}  // namespace ddprun::trainer
