// What becomes of a job on many machines when a round of it failed: the restart policy of one machine (restart_policy.hpp), fed
// with what the nodes report and remembering what it must in the job's budget, so that a successor of the coordinator goes on
// counting. Pure; launcher/network/job_link.cpp gives it to the coordinator.
#pragma once

#include "launcher/events/run_event.hpp"
#include "launcher/verdict/restart_policy.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun {

rendezvous::FailureReport report_of(const Failure& failure, const FailedRound& record);
Failure failure_of(const rendezvous::FailureReport& report);

// Of a round that the coordinator has released with this budget.
RestartFacts facts_of(const rendezvous::Budget& budget);

rendezvous::Verdict judge(const rendezvous::FailureReport& first, const rendezvous::Budget& before,
                          const RestartLimits& limits);

}  // namespace ddprun
