// Where this worker is (phase, finished steps, epoch): told to the agent at each change, and attached to every error.
#pragma once

#include <cstdint>

#include "common/channel/message.hpp"
#include "trainer/parallel/agent_channel.hpp"

namespace ddprun::trainer {

class Status {
 public:
  // From here on changes are sent; null: there is no agent of ours.
  void attach(AgentChannel* agent) { agent_ = agent; }

  void enter(channel::Phase phase) {
    phase_ = phase;
    if (agent_ != nullptr) agent_->send(channel::PhaseChange{.phase = phase_, .step = step_, .epoch = epoch_});
  }
  // Finished steps, and the epoch of the next one. Sent with the next change of phase or progress.
  void reach(std::int64_t step, std::int64_t epoch) {
    step_ = step;
    epoch_ = epoch;
  }

  channel::Phase phase() const { return phase_; }
  std::int64_t step() const { return step_; }
  std::int64_t epoch() const { return epoch_; }
  AgentChannel* agent() const { return agent_; }

 private:
  AgentChannel* agent_ = nullptr;
  channel::Phase phase_ = channel::Phase::kStarting;
  std::int64_t step_ = 0;
  std::int64_t epoch_ = 0;
};

}  // namespace ddprun::trainer
