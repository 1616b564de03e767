// Implementation of agent.hpp. It forks the guardian (the process that starts and reaps the workers), then creates an
// AgentShell and runs it.
#include "launcher/agent/agent.hpp"

#include <string.h>

#include <utility>

#include "launcher/agent/agent_shell.hpp"

namespace ddprun {

int run_agent(const Plan& plan, const AgentFiles& files, const MakeObservers& make_observers,
              std::optional<NetworkStart> network, const AtEnd& at_end) {
  const BlockedSignals signals(plan.signals_to_handle);
  GuardianProcess guardian = start_guardian(files.lock_fd, files.report, [&network] {
    if (network) ::explicit_bzero(network->shell.token.data(), network->shell.token.size());
  });
  AgentShell agent(plan, files, signals, std::move(guardian), make_observers, std::move(network));
  const int exit_code = agent.run();
  agent.shut_down_cleanly();
  if (at_end) at_end(exit_code);
  return exit_code;
}

}  // namespace ddprun
