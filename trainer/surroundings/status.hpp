// The status of this worker: its phase, the stage within a step, the number of finished steps and the epoch. The status is sent
// to the agent at each change of phase and on request, and is part of every error report. The training thread writes it. The
// reader thread of the worker channel also reads it, so that the agent gets an answer even if the training thread hangs.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/channel/message.hpp"
#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {

class Status {
 public:
  // After this call, changes of phase are sent to `agent`, which is null if there is no ddprun agent.
  void attach(AgentChannel* agent) { agent_ = agent; }

  void enter(channel::Phase phase) {
    phase_ = phase;
    if (AgentChannel* agent = agent_) agent->send(channel::PhaseChange{.phase = phase, .step = step_, .epoch = epoch_});
  }
  // Sets the stage within a step. The agent receives the stage only on request, from send_position().
  void at(channel::Stage stage) { stage_ = stage; }
  // Sets the number of finished steps and the epoch of the next step. Both numbers are sent with the next change of phase.
  void reach(std::int64_t step, std::int64_t epoch) {
    stage_ = channel::Stage::kLoading;
    step_ = step;
    epoch_ = epoch;
  }
  // Sends the current position to the agent. Any thread may call this.
  void send_position() const {
    if (AgentChannel* agent = agent_) agent->send(channel::Position{.phase = phase_, .step = step_, .stage = stage_});
  }

  channel::Phase phase() const { return phase_; }
  channel::Stage stage() const { return stage_; }
  std::int64_t step() const { return step_; }
  std::int64_t epoch() const { return epoch_; }
  AgentChannel* agent() const { return agent_; }

 private:
  std::atomic<AgentChannel*> agent_ = nullptr;
  std::atomic<channel::Phase> phase_ = channel::Phase::kStarting;
  std::atomic<channel::Stage> stage_ = channel::Stage::kLoading;
  std::atomic<std::int64_t> step_ = 0;
  std::atomic<std::int64_t> epoch_ = 0;
};

}  // namespace ddprun::trainer
