// The progress of one rank through a step and through a regroup: it records which pieces of the rank are at which step. The
// sharding strategy and the recovery call a method for each event, in the order below. A call in a different order throws.
// After a loss, the ranks exchange report(), and decide_commit() (commit_rule.hpp) decides from all reports. Only the training
// thread may use this class. The code is pure: no I/O, no clock.
//
// The calls of a step from k to k+1, with the trainer's work between them. Work marked "collective" fails if another rank is
// lost.
//
//     begin_step()         releases the gradient pieces of step k, which a regroup could need until now
//     ...                  forward and backward passes; collective
//     gradients_reduced()  the pieces of the summed gradients are complete
//     agree_passed()       the collective agree() has returned; this rank keeps the agreed values until the next agree()
//     begin_update()
//     ...                  this rank computes the update of its pieces; local
//     updated()
//     ...                  the gather of new weights, if the layout has receivers; collective
//     published()          all pieces of this rank are at step k+1
//     evaluated()          optional: an evaluation after this step has finished
//
// The calls of a regroup, after the decision for step T:
//
//  1. If this rank completes step T:
//     take_values()              it has received the agreed values of step T
//     begin_update(), updated()  it updates its pieces, as in a step
//     If not, the trainer undoes the interrupted forward passes: it restores the buffers.
//  2. The rank sends and receives the pieces of the plan.
//     take_values()              if it still lacks the agreed values; they must not arrive before the pieces
//     received_all()             it has sent and received everything
//  3. After a barrier of the new group:
//     switch_layout()            all ranks have received everything
//
// The reasons for three of these rules:
//
//  - The buffers are restored only after the decision. A rank that waits in agree() may still have to complete the step. The
//    completed step needs the buffers that the forward passes have changed, and the gradients.
//  - A rank never has the pieces of step T without the agreed values of step T. If all ranks with the values were lost, no rank
//    at step T-1 could complete the step. A rank also never has the values without the pieces, unless it can complete the step.
//    Without this invariant, the commit rule would choose step T because of this rank, even if the ranks could only return to
//    step T-1.
//  - The pieces of the former layout are kept until the barrier. Without this rule, a rank could release the only copy of a
//    piece while other ranks still receive that piece. If the layout is unchanged, old and new pieces share their memory, at
//    no cost.
#pragma once

#include <cstdint>
#include <optional>

namespace ddprun::trainer {

inline constexpr std::int64_t kNoStep = -1;

// The position of a rank in a layout. Layouts are numbered within a job: a regroup that changes the layout uses the next
// number.
struct LayoutPlace {
  std::int64_t layout_number = 0;
  int rank = 0;
  bool operator==(const LayoutPlace&) const = default;
};

// The progress of one rank, which it sends to the other ranks in a regroup. A step is kNoStep if the rank lacks the pieces or
// values, or if their update or gather was interrupted.
struct StepReport {
  std::optional<LayoutPlace> place{};  // layout of the rank's pieces; nullopt for a replacement that has received no pieces yet
  std::optional<LayoutPlace> next{};   // a later layout whose pieces the rank also has completely, at step `agreed`
  std::int64_t made = kNoStep;         // step of the pieces that the rank computes itself
  std::int64_t received = kNoStep;     // step of the pieces that the rank receives from other ranks
  std::int64_t gradients = kNoStep;    // step whose summed gradient pieces the rank has; kNoStep if it keeps no gradients
  std::int64_t agreed = kNoStep;       // newest step whose agreed values the rank has
  bool evaluated = false;              // the rank has the result of an evaluation after step `agreed`
  bool operator==(const StepReport&) const = default;
};

class StepProgress {
 public:
  // If `keeps_gradients` is true, the gradient pieces stay unchanged until the next begin_step(). A strategy in which each
  // rank has the whole state, such as ddp, may pass false. A rank then reports a step as agreed only after its update, and a
  // rank that is one step behind receives all pieces from other ranks.
  explicit StepProgress(bool keeps_gradients = true) : keeps_gradients_(keeps_gradients) {}

  // Records that this rank has all its pieces after `step`, from the seed or from a checkpoint. Resets all other progress.
  void start_from(std::int64_t step, LayoutPlace place);

  // The following methods record the steps of the protocol. Each method throws InternalError if it is called out of the order
  // that is defined above.
  void begin_step();
  void gradients_reduced();
  void agree_passed();
  void begin_update();
  void updated();
  void published();
  void evaluated();

  StepReport report() const;
  void take_values(std::int64_t step, bool evaluated);
  // `place` is this rank's position in the new layout.
  void received_all(LayoutPlace place);
  void switch_layout();

  // Returns the number of finished steps; kNoStep during an update.
  std::int64_t step() const { return report_.made; }

 private:
  bool keeps_gradients_;
  StepReport report_;
};

}  // namespace ddprun::trainer
