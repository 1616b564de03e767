// Evidence about a failure, from files that the pure state machine cannot read. The agent's shell reads it on this node before
// it publishes the failure. A file that takes too long to read is left out.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/system/file_queue.hpp"
#include "launcher/agent_state/agent_event.hpp"
#include "launcher/events/error_file.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/guardian/guardian_protocol.hpp"
#include "launcher/output/worker_output.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/workers/standby_processes.hpp"

namespace ddprun {

// Adds the path of the log and the last lines of stderr to each failure of this node. If the job ends, it also copies the first
// failed worker's error file to the path in TORCHELASTIC_ERROR_FILE of ddprun's own environment. So the program that called
// ddprun can read the error as if ddprun were a worker.
void add_evidence(RoundFailed& failed, const WorkerOutput& output, FileQueue& files,
                  std::span<const std::string> inherited_environment);

// Adds two findings from a failed script's stderr: the newest line that reports a failed memory allocation, and the last
// exception. If a module is missing, the text of the exception also names the interpreter: "ModuleNotFoundError: No module
// named 'torch'; its Python is /usr/bin/python3".
void add_stderr_errors(agent_event::WorkerExited& ended, const WorkerOutput& output, const Plan& plan);

// Returns the content of a failed worker's error file. Returns nullopt if `file` is empty (the worker has no error file), or if
// no valid file could be read in time.
std::optional<ErrorFile> find_error_file(FileQueue& files, const std::filesystem::path& file);

// Converts the guardian's notice of a worker's exit into an event. The event states whether the kernel killed the worker for
// lack of memory.
agent_event::WorkerExited worker_exit_event(int rank, const guardian::Notice& notice);
struct EvidenceSources {
  const WorkerOutput& output;
  FileQueue& files;
  const Plan& plan;
};
// Adds the content of a failed worker's error file and, for a script, the errors that it wrote to stderr.
void add_worker_evidence(agent_event::WorkerExited& ended, const EvidenceSources& sources);
// Converts the guardian's notice of the exit of a waiting standby into an event.
agent_event::StandbyGone standby_exit_event(const guardian::Notice& notice, StandbyProcesses::ExitInfo exit_info,
                                            const std::string& program, FileQueue& files);

// Explains why the guardian could not execute the program or could not create a process for it.
std::string spawn_failure_reason(const guardian::Notice& notice, const std::string& program, FileQueue& files);

}  // namespace ddprun
