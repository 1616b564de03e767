// The judge of a job decides what happens after a failed round, on one machine and on many. It calls the restart policy
// (restart_policy.hpp) once for each failure, and names the worker that failed. On one machine the agent calls it
// (launcher/decide/agent_state.cpp). On many, launcher/network/job_link.cpp passes it to the coordinator. Pure.
#pragma once

#include "launcher/events/run_event.hpp"
#include "launcher/verdict/restart_policy.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun {

rendezvous::FailureReport report_of(const Failure& failure, const FailedRound& record);
Failure failure_of(const rendezvous::FailureReport& report);

// `before` is the budget that the job has used so far. Store `Verdict::after` if the job follows the verdict.
rendezvous::Verdict judge(const Failure& first, const FailedRound& record, const rendezvous::Budget& before,
                          const RestartLimits& limits);
rendezvous::Verdict judge(const rendezvous::FailureReport& first, const rendezvous::Budget& before,
                          const RestartLimits& limits);

}  // namespace ddprun
