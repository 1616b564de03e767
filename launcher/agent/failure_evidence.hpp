// What the state machine cannot know of a failure, and whom to tell of it: read from this node's logs by the agent's shell,
// before anybody is shown the failure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/decide/agent_event.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/guardian/guardian_protocol.hpp"
#include "launcher/output/worker_output.hpp"

namespace ddprun {

// Where it was, and the last lines of stderr. A failure of another node stays as it is.
void add_evidence(Failure& failure, const WorkerOutput& output);

// The newest of these lines that says that memory was not to be had; empty: none.
std::string out_of_memory_line(const std::vector<std::string>& stderr_tail);

// Whoever started us may have asked for an error file (TORCHELASTIC_ERROR_FILE), as we ask our workers: it gets the first
// cause's.
void hand_on(const Failure& first, std::span<const std::string> inherited_environment);

// How a worker ended, as the guardian says it, with what its memory's figures mean.
agent_event::WorkerExited how_worker_went(int rank, const guardian::Notice& notice);
// The same of a standby that ended while it waited; `last_words`: what it had reported, or its last line.
agent_event::StandbyGone how_standby_went(const guardian::Notice& notice, std::string last_words, const std::string& program);

// The program could not be executed, or no process be made for it: what the guardian's notice says of it.
std::string why_not_started(const guardian::Notice& notice, const std::string& program);

}  // namespace ddprun
