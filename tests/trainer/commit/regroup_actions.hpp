// Defines the actions with which a simulated rank executes the decision of a regroup, in the order that step_progress.hpp
// prescribes.
#pragma once

#include <deque>
#include <string>

#include "trainer/commit/commit_rule.hpp"

namespace ddprun::trainer::simulation {

// A mistake that an implementation could make. The mistake violates the order in step_progress.hpp or the decision of
// commit_rule.hpp. The test plants each mistake, and the simulator must find it.
enum class Mistake {
  kNone,
  kUndoesBeforeTheDecision,   // a rank drops its gradients as soon as its process group breaks
  kTakesValuesTooEarly,       // a rank accepts the agreed values of step T before its pieces of step T have arrived
  kSwitchesBeforeTheBarrier,  // a rank frees the pieces of the old layout as soon as its own transfers are done
  // a rank completes only the pieces that it owns, but not its mirrors of the pieces of other ranks
  kMirrorsAreNotCompleted,
  kCompletesTwice,             // a rank that is already at step T performs the update again
  kTrustsAnInterruptedGather,  // a rank reports the weights as received even if their gather was interrupted
  kForgetsAgreedValues,        // a rank drops the agreed values when the next step starts
  // A rank at the older step overwrites its old pieces while it receives new pieces. If the sender is lost, the rank has no
  // complete pieces.
  kReceivesInPlace,
  kBuffersAreNotRestored,    // a rank returns to a step but keeps the buffers that the forward pass has changed
  kTrustsAFailedUpdate,      // a rank reports pieces as valid even if their update failed
  kSendsBeforeCompleting,    // a rank sends pieces of step T-1 as pieces of step T
  kReportsReceivedTooEarly,  // a rank reports all pieces as received before the last piece has arrived
  // ranks at the older step continue from that step, even if another rank has passed agree() of the next step
  kNoRankCompletes,
  kOneTransferIsSkipped,  // a rank does not receive one piece
  kTwoLossesAreTooMany,   // the job returns to the checkpoint whenever two ranks are lost
  kUpdatesWithOwnValues,  // a rank completes the step with its own agreed values, which belong to the previous step
  kLosesTheEvaluation,    // the agreed values come from a rank that does not have the result of the evaluation
};

// One action of a simulated rank in a regroup.
struct RegroupAction {
  enum class Kind {
    kSendValues,
    kReceiveValues,
    kLocal,
    kPrepare,
    kSend,
    kReceive,
    kFinish,
    kLoad,
    kEnterBarrier,
    kLeaveBarrier
  };
  Kind kind = Kind::kLocal;
  int peer = -1;
  StateTransfer transfer{};
};

std::string name_of(RegroupAction::Kind kind);

// Returns the actions of one rank of the new process group after a regroup. kLocal: the rank completes the interrupted step,
// or restores the buffers that the step changed. kPrepare: the rank allocates memory for the pieces that it will receive. Then
// it sends and receives pieces. kFinish: all transfers are complete, so the rank uses the new layout.
std::deque<RegroupAction> regroup_actions(const CommitDecision& decision, int rank, Mistake mistake);

}  // namespace ddprun::trainer::simulation
