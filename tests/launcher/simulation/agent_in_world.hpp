// The production agent in the simulator of tests/rendezvous/simulation: an AgentState for each node, the production translation
// between the two, and workers that start, train, save, hold, fail and end. The seed decides what they do.
#pragma once

#include "tests/rendezvous/simulation/simulated_launcher.hpp"

namespace ddprun::test {

// A rule of AgentState that is broken, as its environment sees it.
enum class Flaw {
  kNone,
  kHidesFailures,           // ReportFailure is not sent
  kFailsAfterCutOff,        // a worker that the guardian has killed counts as a failure
  kIsOverEarly,             // reports the round as over as soon as it is ordered to end it
  kCallsStoppedDone,        // a script that ended with 0 after it was stopped counts as done
  kCallsEndedSaved,         // a round that was to be saved counts as saved
  kSavesAtOwnStep,          // does not wait for the agreed step of all nodes
  kHidesSteps,              // does not report which step its workers have started
  kHidesSignals,            // ReportSignal is not sent
  kIgnoresSaveOrders,       // SaveOrdered is ignored
  kHoldsInSilence,          // waiting workers do not count as ended
  kKeepsDismissed,          // waiting workers continue although their state is not to be kept
  kEndsBeforeHeld,          // the job ends while workers still wait
  kNeverKills,              // workers that ignore SIGTERM
  kWaitsForRegroupForEver,  // workers that fail to join each other
  kReplacesNobody,          // a lost worker is not started in the next round
};

rendezvous::simulation::MakesLauncher agents_that_ship(Flaw flaw = Flaw::kNone);

}  // namespace ddprun::test
