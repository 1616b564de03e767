// Defines how the training state is spread over the ranks, and which exchanges a step needs because of that. The training loop
// (trainer/loop) uses only this interface. Saving, loading, sharing, comparing and undoing use the state map
// (trainer/state/training_state.hpp), which does not depend on the strategy. The first strategy is Replicated: each rank has
// the whole state.
//
// A step makes these calls in this order. Everything up to agree() may exchange data and so may fail with a lost peer. The
// state is then as before the step, except for the buffers. After agree() there is no exchange, so all ranks finish the step or
// none does.
//
//     zero_grad()
//     for each micro-batch:  sync = it is the last one
//       before_forward(sync);  loss = forward;  before_backward(loss, sync);  loss.backward();  after_backward(sync)
//     agree()
//     update()                                 unless the step is skipped
//
// For the training thread only.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>

#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/parallel/data_parallel.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// The ranks as a grid. The share of a batch and the weight of a loss depend on its first axis, not on the number of ranks.
// Ranks that only hold other parts of one model take the same share of a batch.
struct Mesh {
  int data = 1;       // number of shares of a batch
  int data_rank = 0;  // the share of this rank
};

// Facts about a step's gradients that all ranks know. The gradients are those of the whole global batch at that point.
struct Gradients {
  bool finite = true;  // also true if it is not checked: trainer/state/loss_scale.hpp
  double norm = 0;     // before clipping; 0 if not requested
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
  // Returns the part of the backward passes' time since the last call that was waiting for other ranks. Zero on a GPU.
  virtual std::chrono::nanoseconds take_waited() = 0;

  // Divides the gradients by the loss scale, measures and clips them. Reading the norm waits for the device, so it is returned
  // only if `norm_wanted`.
  virtual Gradients agree(const StateValues& values, bool norm_wanted) = 0;
  // Makes the optimizer's step with this learning rate and updates what depends on the weights. Call between begin_update() and
  // end_step().
  virtual void update(TrainingState& state, double lr) = 0;

  // The order in which gradients are summed. It is saved, so that a resumed run sums in the same order.
  virtual BucketOrder bucket_order() const = 0;
};

}  // namespace ddprun::trainer
