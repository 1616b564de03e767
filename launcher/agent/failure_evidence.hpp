// Evidence about a failure that the state machine cannot know. The agent's shell reads it from this node's files before the
// failure is published. A file that takes too long to read (FileQueue) is left out.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/system/file_queue.hpp"
#include "launcher/decide/agent_event.hpp"
#include "launcher/events/error_file.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/guardian/guardian_protocol.hpp"
#include "launcher/output/worker_output.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/workers/standby_processes.hpp"

namespace ddprun {

// Adds the path of the log and the last lines of stderr to each failure of this node. At the job's end it also writes the first
// cause to the error file of ddprun's caller (TORCHELASTIC_ERROR_FILE). Workers do the same for ddprun.
void add_evidence(RoundFailed& failed, const WorkerOutput& output, FileQueue& files,
                  std::span<const std::string> inherited_environment);

// Adds what a failed script wrote to stderr: the newest line that reports a failed allocation, and its last exception, with the
// interpreter's path if that explains it: "ModuleNotFoundError: No module named 'torch'; its Python is /usr/bin/python3".
void add_what_it_told(agent_event::WorkerExited& ended, const WorkerOutput& output, const Plan& plan);

// The content of a failed worker's error file; nullopt if there is none (an empty path).
std::optional<ErrorFile> find_error_file(FileQueue& files, const std::filesystem::path& file);

// The event for a worker's end, made from the guardian's notice, with a verdict about its memory.
agent_event::WorkerExited how_worker_went(int rank, const guardian::Notice& notice);
// Adds the error file of a failed worker and, for a script, its errors on stderr.
struct LeftBehind {
  const WorkerOutput& output;
  FileQueue& files;
  const Plan& plan;
};
void add_what_it_left(agent_event::WorkerExited& ended, const LeftBehind& left);
// The same for a standby that ended while it waited.
agent_event::StandbyGone how_standby_went(const guardian::Notice& notice, StandbyProcesses::Went went,
                                          const std::string& program, FileQueue& files);

// The reason why the program could not be executed, or no process could be made, from the guardian's notice.
std::string why_not_started(const guardian::Notice& notice, const std::string& program, FileQueue& files);

}  // namespace ddprun
