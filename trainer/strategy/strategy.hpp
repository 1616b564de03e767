// How the state of a training is spread over the ranks, and what a step exchanges because of that. The training loop
// (trainer/loop) knows no more of it than this. What is saved, loaded, shared, compared and undone goes by the state map
// (trainer/state/training_state.hpp), and knows no strategy. The first strategy is Replicated: each rank has the whole state.
//
// A step, in this order. Everything up to agree() may exchange something and so may fail with a lost peer; the state is then as
// it was before, but for the buffers. What follows exchanges nothing, so that all ranks finish the step or none does.
//
//     zero_grad()
//     for each micro-batch:  sync = it is the last one
//       before_forward(sync);  loss = forward;  before_backward(loss, sync);  loss.backward();  after_backward(sync)
//     agree()
//     update()                                 unless the step is skipped
//
// The training thread only.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>

#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/parallel/data_parallel.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// The ranks as a grid. Data and the weight of a loss go by its first axis, and not by the number of ranks: ranks that only hold
// other parts of one model take the same share of a batch.
struct Mesh {
  int data = 1;       // shares that a batch has
  int data_rank = 0;  // the share of this rank
};

// What all ranks know of a step's gradients, which are those of the whole global batch by then.
struct Gradients {
  bool finite = true;  // true as well where nobody looks: trainer/state/loss_scale.hpp
  double norm = 0;     // before they were clipped; 0 where it is not wanted
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
  // Of what the backward passes took since the last call, the waiting for other ranks. Zero on a GPU.
  virtual std::chrono::nanoseconds take_waited() = 0;

  // Divides the gradients by the scale of the loss, measures and clips them. Reading the norm waits for the device, so it is
  // told only where it is `norm_wanted`.
  virtual Gradients agree(const StateValues& values, bool norm_wanted) = 0;
  // The optimizer's step with this learning rate, and what follows the weights. Between begin_update() and end_step().
  virtual void update(TrainingState& state, double lr) = 0;

  // The order in which gradients were added up, to be saved: a resumed run adds them in the same one.
  virtual BucketOrder bucket_order() const = 0;
};

}  // namespace ddprun::trainer
