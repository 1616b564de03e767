// The commit rule decides, after a rank was lost, at which step the job continues, and how each rank gets to that step. The
// code is pure: each rank computes the same decision from the reports of all ranks of the new group.
//
// The problem. Under ddp, each rank has the whole state, so the most advanced rank sends its state to the other ranks. With
// sharding, the state is cut into pieces (trainer/layout/state_layout.hpp), and no rank has all of them. A lost rank can
// interrupt an update: some pieces are then at step k, and others already at step k+1. The job cannot return to step k,
// because the updated pieces of step k are overwritten. It can complete step k+1 only if the ranks still have the gradients.
//
// The idea. Before the update, all ranks exchange a few values (gradient norm, finite or not, learning rate) in a collective,
// agree(). A rank leaves agree() only after all ranks have entered it. A rank enters agree() only with complete pieces of the
// summed gradients. So if any rank has passed agree() for step k+1, every rank has its gradient pieces for step k+1. A rank
// that has not passed agree() lacks only the agreed values. Hence one rule:
//
//     T is the largest step for which any survivor has the agreed values. The job continues after step T.
//
//  - No survivor has passed agree() for k+1: T is k. No piece has changed. All ranks return to step k.
//  - A survivor has passed agree() for k+1: T is k+1. The survivor sends the agreed values to the ranks that lack them. These
//    ranks complete the update from the gradient pieces that they still have. So a step that any survivor has agreed on is
//    never lost. No update is applied twice, because a rank completes only pieces of step k.
//  - The pieces of a lost rank come from another rank that also has them, after this other rank has completed step T.
//  - If the gather of new weights was interrupted, the ranks that compute these weights send them again.
//  - If a piece is computed by no survivor, the job returns to its checkpoint.
//
// Example: zero1 on 3 ranks with mirrors. Rank 2 crashes after it has passed agree() for step 8. Rank 0 has passed agree() as
// well, has updated its slice, and waits in the gather. Rank 1 waits in agree(). The reports are: rank 0 {made 8, agreed 8,
// gradients 8}, rank 1 {made 7, agreed 7, gradients 8}, and an empty one from the replacement of rank 2. T is 8. Rank 0 sends
// the agreed values to ranks 1 and 2. Rank 1 updates its own slice and its mirror of the slice of rank 0. Rank 0 has a mirror
// of the slice of rank 2. It has already updated this mirror, and sends it to the new rank 2. Finally, each rank receives the
// weights of step 8 that it lacks.
//
// Under ddp the rule reduces to "the most advanced state wins", since ranks are at most one step apart. A rank at step k that
// does not keep its gradients cannot compute step k+1, so it receives the whole state.
//
// If a rank is lost during the regroup, another regroup starts with new reports. The rule then still works, because the call
// order of StepProgress keeps two invariants:
//
//  - A rank has all its pieces and the agreed values of step T, or it can complete step T, or it has neither the pieces nor
//    the values.
//  - A rank that had a piece before the regroup keeps it until the ranks that need it have received it.
//
// A rank at step T-1 that cannot complete step T keeps its old pieces until all new ones have arrived, since the sender may be
// lost too. Such a rank needs memory for both sets. This happens only under ddp without kept gradients.
//
// The cost. The gradient pieces stay allocated until the next step begins. This does not raise the peak memory of any strategy,
// since the next backward pass needs the same memory again. The agreed values are a few numbers. Only a regroup that changes
// the layout needs memory for two layouts.
//
// Alternative considered: each rank keeps its old pieces until the next agree(), so that all ranks can return to step k. That
// costs 12 bytes per parameter of a slice for fp32 AdamW, and loses a step that may already have been logged.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/commit/step_progress.hpp"
#include "trainer/layout/state_layout.hpp"
#include "trainer/layout/transfer_plan.hpp"

namespace ddprun::trainer {

enum class CommitOutcome {
  kReturn,      // all survivors that have pieces return to their last finished step
  kComplete,    // some survivors are one step behind: they complete the step from kept gradients, or receive the pieces
  kCheckpoint,  // a piece is missing on all survivors: all ranks load the checkpoint, or start from the seed
};

struct CommitDecision {
  CommitOutcome outcome = CommitOutcome::kCheckpoint;
  std::int64_t step = kNoStep;  // last finished step after the regroup; kNoStep for kCheckpoint
  int values_from = -1;         // rank that sends its agreed values to the other ranks; -1 for kCheckpoint
  // Ranks that receive the agreed values. Ranks that are also in `complete` receive them before they update.
  std::vector<int> values_to{};
  std::vector<int> complete{};       // ranks that complete the step by applying their gradient pieces
  std::vector<int> receive_aside{};  // ranks that keep their old pieces until all new ones have arrived
  // Transfers of pieces into the new layout, after the updates of the ranks in `complete`.
  std::vector<StateTransfer> transfers{};
  std::string reason{};  // for kCheckpoint: why a checkpoint is needed, as text for a message
};

// Maps the layout number in a report (LayoutPlace) to the layout itself.
struct NumberedLayout {
  std::int64_t layout_number = 0;
  const StateLayout* layout = nullptr;
};

// Decides how the new group continues. `reports` has one entry for each rank of `now`, the layout of the new group. `known` has
// each layout that a report names. Throws InternalError if a named layout is missing, and the errors of plan_transfers(). A
// rank that is more than one step behind counts as a rank without pieces. A correct sharding strategy never lets a rank fall
// that far behind.
CommitDecision decide_commit(std::span<const StepReport> reports, std::span<const NumberedLayout> known,
                             const StateLayout& now);

}  // namespace ddprun::trainer
