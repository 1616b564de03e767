// What the state machine cannot know of a failure, and whom to tell of it: read from this node's files by the agent's shell,
// before anybody is shown the failure. Files that take long to answer (FileQueue) are gone without.
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

namespace ddprun {

// For each failure of this node where it was, and the last lines of stderr. When it ends the job: whoever started us may have
// asked for an error file (TORCHELASTIC_ERROR_FILE), as we ask our workers, and gets the first cause's.
void add_evidence(RoundFailed& failed, const WorkerOutput& output, FileQueue& files,
                  std::span<const std::string> inherited_environment);

// Of a script that ended badly, what it told on its stderr: the newest line that says that memory was not to be had, and its
// last exception, with the interpreter where that is what one must know: "ModuleNotFoundError: No module named 'torch'; its
// Python is /usr/bin/python3".
void add_what_it_told(agent_event::WorkerExited& ended, const WorkerOutput& output, const Plan& plan);

// What a worker that ended badly left in its error file; nothing where there is none (an empty path).
std::optional<ErrorFile> find_error_file(FileQueue& files, const std::filesystem::path& file);

// How a worker ended, as the guardian says it, with what its memory's figures mean.
agent_event::WorkerExited how_worker_went(int rank, const guardian::Notice& notice);
// Adds what a worker that ended badly has left: its error file, and of a script what it told on its stderr.
struct LeftBehind {
  const WorkerOutput& output;
  FileQueue& files;
  const Plan& plan;
};
void add_what_it_left(agent_event::WorkerExited& ended, const LeftBehind& left);
// The same of a standby that ended while it waited; `last_words`: what it had reported, or its last line.
agent_event::StandbyGone how_standby_went(const guardian::Notice& notice, std::string last_words, const std::string& program,
                                          FileQueue& files);

// The program could not be executed, or no process be made for it: what the guardian's notice says of it.
std::string why_not_started(const guardian::Notice& notice, const std::string& program, FileQueue& files);

}  // namespace ddprun
