// Runs production agents in the simulator of tests/rendezvous/simulation. Each node has an AgentState, which the production
// code of launcher/network/translation.cpp connects to the node. Simulated workers start, train, save, fail and exit, and keep
// their state between two rounds. The random seed determines these events.
#pragma once

#include "tests/rendezvous/simulation/simulated_launcher.hpp"

namespace ddprun::test {

// Each value turns off one rule of AgentState. Its name describes the wrong behaviour that other nodes then observe.
enum class Flaw {
  kNone,
  kHidesFailures,      // failures are not reported
  kFailsAfterCutOff,   // a worker that the guardian killed because the coordinator did not answer counts as a failure
  kIsOverEarly,        // the end of the round is reported as soon as it is requested, before the workers have exited
  kCallsStoppedDone,   // a script that exited with 0 after a stop counts as done
  kCallsEndedSaved,    // a round that ended without saving counts as saved
  kSavesAtOwnStep,     // workers save at the step that this node has chosen, not at the step on which all nodes agreed
  kHidesSteps,         // the agent does not report which step its workers have started
  kHidesSignals,       // signals are not reported
  kIgnoresSaveOrders,  // requests to save are ignored
  kHidesHeld,          // the end of a round is not reported if workers are held
  kKeepsDismissed,     // workers continue even after the coordinator has requested that they drop their state
  kEndsBeforeHeld,     // the agent exits while workers that kept their state are still running
  kNeverKills,         // workers that ignore SIGTERM are not killed
  kNeverEndsRegroup,   // a regroup in which workers cannot connect to each other has no time limit
  kReplacesNone,       // a lost worker is not started again in the next round
};

rendezvous::simulation::LauncherFactory production_agents(Flaw flaw = Flaw::kNone);

}  // namespace ddprun::test
