// Decides what follows a failed round: a restart, or the end of the job with an exit code. It calls the restart policy
// (restart_policy.hpp) once for each failed round, and adds the failed worker to the message. On one machine the agent calls
// judge() (launcher/agent_state/round_judgement.cpp). In a multi-node job, launcher/network/job_link.cpp passes judge() to the
// coordinator. The code is pure: no I/O, no clock.
#pragma once

#include "launcher/events/run_event.hpp"
#include "launcher/restart_policy/restart_policy.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun {

// These functions convert between the agent's description of a failure and the report that nodes send to the coordinator.
rendezvous::FailureReport report_of(const Failure& failure, const FailedRound& record);
Failure failure_of(const rendezvous::FailureReport& report);

// These functions judge a failed round: the first one with the failure of a local worker, the second with a report from any
// node. `before` is the budget that the job has used so far. `Verdict::after` is the budget after this failure. If the job
// follows the verdict, the caller must store this budget and pass it to the next call.
rendezvous::Verdict judge(const Failure& first, const FailedRound& record, const rendezvous::Budget& before,
                          const RestartLimits& limits);
rendezvous::Verdict judge(const rendezvous::FailureReport& first, const rendezvous::Budget& before,
                          const RestartLimits& limits);

}  // namespace ddprun
