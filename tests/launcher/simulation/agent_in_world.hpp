// The agent that ships, in the simulator of tests/rendezvous/simulation: an AgentState for each node, the translation that
// ships between the two, and workers that start, train, save, hold, fail and end. What they do follows from the seed.
#pragma once

#include "tests/rendezvous/simulation/simulated_launcher.hpp"

namespace ddprun::test {

// A rule of AgentState that is broken, as its surroundings see it.
enum class Flaw {
  kNone,
  kHidesFailures,           // ReportFailure is not sent
  kFailsAfterCutOff,        // what the guardian has killed is a failure
  kIsOverEarly,             // says that the round is over when it hears that it is to end
  kCallsStoppedDone,        // a script that ended with 0 since it was stopped is done
  kCallsEndedSaved,         // a round that was to be saved has been
  kSavesAtOwnStep,          // does not wait for the step of all nodes
  kHidesSteps,              // does not say which step its workers have started
  kHidesSignals,            // ReportSignal is not sent
  kIgnoresSaveOrders,       // SaveOrdered is not obeyed
  kHoldsInSilence,          // workers that wait do not count as gone
  kKeepsDismissed,          // waiting workers go on though their state is not to be kept
  kEndsBeforeHeld,          // the job ends while workers still wait
  kNeverKills,              // workers that don't heed SIGTERM
  kWaitsForRegroupForEver,  // the workers don't come together
  kReplacesNobody,          // a lost worker is not started with the next round
};

rendezvous::simulation::MakesLauncher agents_that_ship(Flaw flaw = Flaw::kNone);

}  // namespace ddprun::test
