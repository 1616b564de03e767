// Defines with which exit code and final message (JobEnd) a job ends, or one node leaves it. No other file in rendezvous
// chooses an exit code. If the exit code depends on the workers of one node, the agent of this node chooses it
// (launcher/agent_state/job_ending.hpp). The code is pure: no I/O, no clock.
//
// When a job ends, the coordinator sends a JobEnd to all nodes, and each node exits with the code in that message. A node
// chooses its own exit code only if it leaves the job or finds no coordinator.
#pragma once

#include <string>

#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

struct JobEnd {
  int exit_code = 0;
  std::string why{};  // the last message for the user
};

// These functions return the JobEnd (exit code and final message) that the coordinator sends to all nodes.
namespace job_end {
JobEnd done();
JobEnd too_few_nodes(std::string why);
JobEnd after_failure(const Verdict& verdict);
// For a job that ends with this verdict, after one node has saved the state of its held workers.
JobEnd after_failure_and_save(const Verdict& verdict);
JobEnd stopped(int signal);
JobEnd stopped_without_saving(int signal, const std::string& why);
// For a job that was stopped by a signal, and whose coordinator ordered all workers to save before the job ended. `all_saved`
// is true if all of them have saved.
JobEnd stopped_and_saved(int signal, bool all_saved);
// Returns the verdict after a stop signal that arrived while workers waited for replacements. This verdict applies if no node
// saves.
Verdict stopped_while_waiting(int signal, const std::string& why);
}  // namespace job_end

// These functions return the JobEnd of a single node, which this node chooses itself. The job may continue on other nodes.
namespace node_end {
JobEnd left(int signal);
JobEnd left_after_order_to_save(int signal, bool saved);
JobEnd refused_by_coordinator(const std::string& text);
JobEnd no_coordinator(const std::string& seconds);
JobEnd minority(std::string why);
JobEnd wrong_token(std::string why);
JobEnd wrong_usage(std::string why);
JobEnd no_peers(std::string why);
}  // namespace node_end

}  // namespace ddprun::rendezvous
