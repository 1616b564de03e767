// A standby worker (ddprun --standby) waits here for its rank. The agent assigns one over the worker channel, or is gone.
// trainer/life/process.cpp calls it after it has loaded everything that needs no rank.
//
// Thread-safe: the channel's reader thread delivers the message, and the main thread sleeps until then.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "common/channel/message.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

class Standby {
 public:
  // Called on the reader thread. The message may arrive before wait() is called.
  void on_message(const channel::FromAgent& message);
  void on_agent_gone();

  // Throws std::runtime_error if the agent is gone.
  channel::AssignRank wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<channel::AssignRank> word_;
  bool agent_gone_ = false;
};

// Changes the environment to that rank. Throws std::runtime_error for a rank that the job does not have.
void take_place(WorkerEnvironment& environment, const channel::AssignRank& word);

}  // namespace ddprun::trainer
