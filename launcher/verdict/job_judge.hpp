// What becomes of a job on many machines when a round of it failed: the restart policy (restart_policy.hpp) in the
// coordinator's words. Pure; launcher/network/job_link.cpp gives it to the coordinator.
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
