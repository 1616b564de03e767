// Connects the `ddprun doctor` processes (the doctors) on the nodes of a job. This is the I/O of gathering.hpp. The doctors use
// the transport of the job's agents: the same address, TLS with a key from the job's token, and frames. They do not form a
// round. A round needs all of its nodes, the same protocol version on each of them, and files for its record, but a doctor must
// also work if one of these is missing.
#pragma once

#include <optional>
#include <string>

#include "launcher/doctor/nodes/meeting_place.hpp"
#include "launcher/doctor/nodes/meeting_result.hpp"
#include "launcher/doctor/nodes/node_report.hpp"

namespace ddprun::doctor {

// Exchanges reports with the other nodes. Finds the token as a job does, and creates it on the first node if it does not exist
// yet. Blocks until the comparison is complete, at most for place.wait plus some seconds. `token_variable` is the value of
// DDPRUN_TOKEN. Call this after all child processes of the doctor have ended, since it may start threads. On success, it adds
// the check of the token to `own`.
Meeting meet(const DoctorPlace& place, std::optional<std::string> token_variable, NodeReport& own);

}  // namespace ddprun::doctor
