// The agent of one node. It starts the workers through the guardian (the process that reaps them), and serves their channels
// and their store. It also monitors the workers and stops them. Pure state machines make the decisions (agent_state.hpp,
// restart_policy.hpp). Everything runs on one thread and one io_context, without polling.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/system/file_queue.hpp"
#include "launcher/agent/output_reader.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/network/network_start.hpp"
#include "launcher/output/worker_output_files.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

class ConsoleWriter;
class JobLink;

struct AgentFiles {
  int lock_fd = -1;                // descriptor of the run directory's lock; the guardian keeps a copy open; -1: no lock
  std::filesystem::path log_root;  // folder of the workers' logs; empty if no logs are written
  // Path of the report (JSON), which the guardian completes if the agent is killed; empty if none is written.
  std::filesystem::path report;
  LogLayout layout = LogLayout::kRounds;
};

// The interface of the agent for its observers (console, report). The report's observer passes each new text of the report to
// the guardian (keep_report) before it writes the file through `files`. If the agent is killed before it has written the file,
// the guardian writes the text.
struct AgentAccess {
  boost::asio::io_context& io;
  ConsoleWriter& console;
  FileQueue& files;
  std::function<void(std::string_view text)> keep_report;
  // Stops the job as if this signal had arrived, even if --signals-to-handle does not list the signal.
  std::function<void(int signal)> stop_as_on_signal;
  // Sends an event to all observers. An observer must not call this function while it handles an event.
  std::function<void(const RunEvent&)> publish;
  JobLink* job = nullptr;  // null in a job on one machine
  // Sets the function that receives a copy of the workers' output. Output that goes only to a file is not included.
  std::function<void(OutputReader::Tap tap)> tap_output;
};

// The agent calls the observers on its own thread. `service` is an object that answers queries about the job. This object is
// destroyed together with the observers.
struct AgentObservers {
  std::vector<std::unique_ptr<RunObserver>> observers{};
  std::shared_ptr<void> service{};
};

// Creates the observers (console, report). The agent calls this function after it has created the console.
using MakeObservers = std::function<AgentObservers(const AgentAccess& agent)>;

// The agent calls this function with the exit code when all its work is done. The guardian exits in parallel, so slow work in
// this function hardly delays the end of ddprun.
using AtEnd = std::function<void(int exit_code)>;

// Runs the job that the plan describes and returns the exit code. `network` is set in a job on many machines, where this
// process is one of the nodes. This function forks the guardian first, so the process must have only one thread when it is
// called.
int run_agent(const Plan& plan, const AgentFiles& files, const MakeObservers& make_observers,
              std::optional<NetworkStart> network = std::nullopt, const AtEnd& at_end = {});

}  // namespace ddprun
