// One node's agent: starts the workers of a round under the guardian, serves their channels and store, watches, decides by the pure
// machines (agent_state.hpp, restart_policy.hpp) and stops them. One thread, one io_context; nothing polls.
#pragma once

#include <functional>
#include <vector>

#include "launcher/plan.hpp"
#include "launcher/run_event.hpp"

namespace ddprun {

struct AgentFiles {
  int lock_fd = -1;                  // the run directory's lock, held on by the guardian too
  std::filesystem::path log_root;    // logs/ of the run directory, or the temporary folder of a script
  std::filesystem::path report;      // for the guardian to complete when the agent is killed; may be empty
};

// Runs the plan to its end and returns the exit code. Observers are called on this thread. Must be called with one thread alive (it forks the guardian first).
int run_agent(const Plan& plan, const AgentFiles& files, const std::vector<RunObserver*>& observers);

}  // namespace ddprun
