// One node's agent. It starts the workers of a round under the guardian, serves their channels and store, watches them and
// stops them. Pure state machines make the decisions (agent_state.hpp, restart_policy.hpp). One thread, one io_context; nothing
// polls.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/system/file_queue.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/network/network_start.hpp"
#include "launcher/output/worker_output_files.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

class ConsoleWriter;
class JobLink;

struct AgentFiles {
  int lock_fd = -1;                // the run directory's lock, which the guardian holds as well
  std::filesystem::path log_root;  // logs/ of the run directory, or a script's folder of this run; empty: no files
  std::filesystem::path report;    // the guardian completes it when the agent is killed; may be empty
  LogLayout layout = LogLayout::kRounds;
};

// The parts of the agent that observers may use. A report's text goes to the guardian first (keep_report), then to the disk
// (files).
struct AgentAccess {
  boost::asio::io_context& io;
  ConsoleWriter& console;
  FileQueue& files;
  std::function<void(std::string_view text)> keep_report;
  // Stops the job as the signal does, even if --signals-to-handle does not list it.
  std::function<void(int signal)> stop_as_at;
  std::function<void(const RunEvent&)> publish;  // to all observers; must not be called by an observer during its own call
  std::function<JobLink*()> job;                 // on many machines, once it exists; otherwise nullptr
};

// Makes the observers (console, report) once the console exists; they are called on the agent's thread.
using MakeObservers = std::function<std::vector<std::unique_ptr<RunObserver>>(const AgentAccess& agent)>;

// Called with the exit code when everything except the guardian has ended. Slow work can run while the guardian ends.
using AtEnd = std::function<void(int exit_code)>;

// Runs the plan to its end and returns the exit code; with `network`, as one node of a job on many machines. Call it while the
// process has one thread: it forks the guardian first, then makes the io_context, the ConsoleWriter(io, STDOUT_FILENO,
// STDERR_FILENO), WorkerOutput and the observers.
int run_agent(const Plan& plan, const AgentFiles& files, const MakeObservers& make_observers,
              std::optional<NetworkStart> network = std::nullopt, const AtEnd& at_end = {});

}  // namespace ddprun
