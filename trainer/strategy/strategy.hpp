// The interface between the training loop (trainer/loop) and a way to distribute the training state over the ranks. A strategy
// does all communication of a step that depends on this distribution. Replicated is the only strategy so far: each rank has
// the whole state. A strategy that shards the state can be added without changing the loop. Code that saves, loads, sends,
// compares or restores a training state uses the state map instead (trainer/state/training_state.hpp).
//
// Each step makes the calls below in this order. Calls up to agree() may communicate, so they may fail because a worker is
// lost. Until then only the buffers have changed, and the step can be undone. update() must not communicate. So either all
// ranks finish the step, or no rank does.
//
//     zero_grad()
//     for each micro-batch:  sync = it is the last one
//       before_forward(sync);  loss = forward;  before_backward(loss, sync);  loss.backward();  after_backward(sync)
//     agree()
//     update()                                 unless the step is skipped
//
// Only the training thread may call a strategy.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>

#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/parallel/data_parallel.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// The ranks as a grid whose first axis is data parallelism. The size of this axis, and not the number of ranks, determines into
// how many parts a batch is divided and how a rank's loss is weighted. If a model replica were sharded over several ranks,
// these ranks would process the same part.
struct Mesh {
  int data = 1;       // number of parts into which a batch is divided
  int data_rank = 0;  // index of the part that this rank processes
};

// Properties of a step's gradients after the all-reduce. They are equal on all ranks.
struct Gradients {
  bool finite = true;  // false if a gradient is NaN or infinite; stays true if the config needs no check (loss_scale.hpp)
  double norm = 0;     // norm before clipping; valid only if it was requested
};

class Strategy {
 public:
  Strategy() = default;
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  virtual void zero_grad() = 0;
  virtual void before_forward(bool sync) = 0;
  virtual void before_backward(const at::Tensor& loss, bool sync) = 0;
  virtual void after_backward(bool sync) = 0;
  // Returns the time for which backward passes have waited for other ranks since the previous call to take_waited(). It is
  // always zero on a GPU.
  virtual std::chrono::nanoseconds take_waited() = 0;

  // Divides the gradients by the loss scale, measures their norm and clips them. Returns the norm only if `norm_wanted` is
  // true, because reading the norm waits for the GPU.
  virtual Gradients agree(const StateValues& values, bool norm_wanted) = 0;
  // Runs the optimizer with the learning rate `lr`, and updates everything that depends on the weights. Call this between
  // begin_update() and end_step().
  virtual void update(TrainingState& state, double lr) = 0;

  // Returns the order in which gradients are summed. Checkpoints contain this order, so that a resumed run sums in the same
  // order.
  virtual BucketOrder bucket_order() const = 0;
};

}  // namespace ddprun::trainer
