// Where a standby worker waits for its rank (ddprun --standby): the agent says over the worker channel whose place it takes, or
// is gone. trainer/life/process.cpp waits here once everything is loaded that needs no rank.
//
// Thread-safe: the channel's reader thread brings the word, the main thread waits for it, without waking up meanwhile.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "common/channel/message.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

class Standby {
 public:
  // On the reader thread; the word may come before anybody waits.
  void on_message(const channel::FromAgent& message);
  void on_agent_gone();

  // Throws std::runtime_error when the agent is gone.
  channel::AssignRank wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<channel::AssignRank> word_;
  bool agent_gone_ = false;
};

// Makes it the environment of that rank. Throws std::runtime_error for one that the job does not have.
void take_place(WorkerEnvironment& environment, const channel::AssignRank& word);

}  // namespace ddprun::trainer
