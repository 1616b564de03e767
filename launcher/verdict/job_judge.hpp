// The judge of a job: what happens to it after a failed round, on one machine and on many. It asks the restart policy
// (restart_policy.hpp), once for each failure, and names the worker that failed. The agent of a job on one machine calls it
// (launcher/decide/agent_state.cpp); launcher/network/job_link.cpp passes it to the coordinator of many. Pure.
#pragma once

#include "launcher/events/run_event.hpp"
#include "launcher/verdict/restart_policy.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun {

rendezvous::FailureReport report_of(const Failure& failure, const FailedRound& record);
Failure failure_of(const rendezvous::FailureReport& report);

// `before` is what the job has used until now; adopt `Verdict::after` when the job does as the verdict says.
rendezvous::Verdict judge(const Failure& first, const FailedRound& record, const rendezvous::Budget& before,
                          const RestartLimits& limits);
rendezvous::Verdict judge(const rendezvous::FailureReport& first, const rendezvous::Budget& before,
                          const RestartLimits& limits);

}  // namespace ddprun
