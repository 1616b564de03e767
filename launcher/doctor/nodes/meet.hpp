// The meeting of the doctors of a job: the I/O of gathering.hpp. The nodes use the transport of the job's agents: the same
// address, TLS with a key from the job's token, and frames. They do not form a round, because a round needs all of its nodes,
// the same protocol version on each of them, and files for its record. A doctor must also work if these are the fault.
#pragma once

#include <optional>
#include <string>

#include "launcher/doctor/nodes/meeting_place.hpp"
#include "launcher/doctor/nodes/meeting_result.hpp"
#include "launcher/doctor/nodes/node_report.hpp"

namespace ddprun::doctor {

// Finds the token as a job does, and creates it on the first node if it does not exist yet. Blocks until the meeting has ended,
// at most place.wait and some seconds. `token_variable` is the value of DDPRUN_TOKEN. Call this after all child processes of
// the doctor have ended, since it may start threads.
// On success, it adds the check of the token to `own`.
Meeting meet(const DoctorPlace& place, std::optional<std::string> token_variable, NodeReport& own);

}  // namespace ddprun::doctor
