// The position of this worker: phase, stage of a step, finished steps, epoch. It is sent to the agent at each change of phase
// and on request, and attached to every error. The training thread writes it. The channel's thread reads it, to answer for a
// training thread that hangs.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/channel/message.hpp"
#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {

class Status {
 public:
  // Changes are sent from here on; null without an agent of ours.
  void attach(AgentChannel* agent) { agent_ = agent; }

  void enter(channel::Phase phase) {
    phase_ = phase;
    if (AgentChannel* agent = agent_) agent->send(channel::PhaseChange{.phase = phase, .step = step_, .epoch = epoch_});
  }
  // Sets the stage within a step. The agent does not receive it.
  void at(channel::Stage stage) { stage_ = stage; }
  // Sets the number of finished steps and the epoch of the next one. Sent with the next change of phase or progress.
  void reach(std::int64_t step, std::int64_t epoch) {
    stage_ = channel::Stage::kLoading;
    step_ = step;
    epoch_ = epoch;
  }
  // Callable from any thread.
  void tell_position() const {
    if (AgentChannel* agent = agent_) agent->send(channel::Position{.phase = phase_, .step = step_, .stage = stage_});
  }

  channel::Phase phase() const { return phase_; }
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
