// Defines all ends that the rendezvous chooses, for a whole job or for one node, with their exit codes and final messages. No
// other file in rendezvous chooses an exit code. An agent adds the ends that depend on its own workers
// (launcher/agent_state/job_ending.hpp). The code is pure: no I/O, no clock.
//
// Within a job, the coordinator chooses the end. It sends its JobEnd to all nodes, and each node exits with the code in it. A
// node chooses a code itself only if it leaves the job or finds no coordinator.
#pragma once

#include <string>

#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

struct JobEnd {
  int exit_code = 0;
  std::string why{};  // the last message for the user
};

// These functions return the ends that the coordinator chooses for all nodes.
namespace job_end {
JobEnd done();
JobEnd too_few_nodes(std::string why);
JobEnd after_failure(const Verdict& verdict);
// Returns the end of a job that the verdict has ended, after one node has saved the state of its waiting workers.
JobEnd after_failure_and_save(const Verdict& verdict);
JobEnd stopped(int signal);
JobEnd stopped_without_saving(int signal, const std::string& why);
// Returns the end of a job after the workers of all nodes were ordered to save. `all_saved` is true if all workers have saved.
JobEnd stopped_and_saved(int signal, bool all_saved);
// Returns the verdict after a stop signal that arrived while workers waited for replacements. It applies if no node saves.
Verdict stopped_while_waiting(int signal, const std::string& why);
}  // namespace job_end

// These functions return the ends that one node chooses for itself. The job may continue on other nodes.
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
