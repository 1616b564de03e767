// What happens to a job on many machines after a failed round: the answer of the restart policy (restart_policy.hpp), in the
// coordinator's types. Pure; launcher/network/job_link.cpp passes it to the coordinator.
#pragma once

#include "launcher/events/run_event.hpp"
#include "launcher/verdict/restart_policy.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun {

rendezvous::FailureReport report_of(const Failure& failure, const FailedRound& record);
Failure failure_of(const rendezvous::FailureReport& report);

rendezvous::Verdict judge(const rendezvous::FailureReport& first, const rendezvous::Budget& before,
                          const RestartLimits& limits);

}  // namespace ddprun
