// Settings of AgentState. They do not change while the job runs. launcher/agent/agent_settings.hpp creates them from a plan.
#pragma once

#include <chrono>

#include "launcher/restart_policy/restart_policy.hpp"

namespace ddprun {

struct AgentSettings {
  int world_size = 1;  // number of workers on this node
  enum class Mode { kAlone, kMember } mode = Mode::kAlone;
  // true: the workers run ddptrain, which always uses the worker channel; a script may ignore it
  bool workers_have_channel = false;
  int first_round = 0;  // number of the first round; the numbers continue from earlier ddprun calls with the same run directory
  std::chrono::milliseconds shutdown_timeout{30000};
  RestartLimits restarts{};
  // Time limit for replacing a lost worker while the other workers keep their state. If it is zero, any failure ends the round.
  // The limit is extended to twice the time that the workers needed to start. It is used only if the workers report
  // Regroupable.
  std::chrono::milliseconds regroup_limit{0};
  // ddptrain: number of standby processes that wait to replace a lost worker, if regroup_limit is not zero. Scripts: number of
  // spare interpreters that wait to become workers of the next round.
  int standbys = 0;
  int max_loading_spares = 1;  // maximum number of spare interpreters that load at the same time

  bool is_member() const { return mode == Mode::kMember; }
  bool keeps_spares() const { return !workers_have_channel; }
};

}  // namespace ddprun
