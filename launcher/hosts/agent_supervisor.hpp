// The process that `ddprun --hosts` starts on each host over ssh. It starts the agent there, forwards the agent's output, and
// ends the agent if the connection is lost for too long. main() runs it as a hidden subcommand.
#pragma once

namespace ddprun {

// Exchanges messages (host_messages.hpp) over the standard input and output, until the agent has ended and its result was
// delivered. Returns the exit code of this process, which does not depend on the exit code of the agent.
//
// The connection counts as lost if standard input is closed, or if no bytes arrive for 30 s. The kernel of this host may need
// hours to detect that the other machine is unreachable. Another process of this subcommand then passes its own standard input
// and output to this process. The two processes connect through a Unix socket in the user's control folder.
int supervise_agent_over_ssh();

}  // namespace ddprun
