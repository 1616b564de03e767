// An exponential moving average of the trained weights, like torch.optim.swa_utils.AveragedModel with
// multi_avg_fn=get_ema_multi_avg_fn(decay). As in PyTorch, buffers are not averaged: an evaluation of the average uses the
// current buffers of the model. The training state contains the average and the number of its updates
// (trainer/state/training_state.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

class WeightAverage {
 public:
  // `parameters` are the model's tensors. The average starts with their current values.
  WeightAverage(double decay, const std::vector<NamedTensor>& parameters);

  // Call this after each optimizer step. If `first` is true, the average becomes a copy of the weights.
  void update(bool first);

  // Returns the averaged weights, under the names of their parameters.
  const std::vector<NamedTensor>& tensors() const { return averages_; }

  // While this object exists, the model uses the averaged weights, which must not be changed. No data is copied: the parameters
  // refer to the memory of the average, and the destructor restores them.
  class WeightSwap {
   public:
    explicit WeightSwap(const WeightAverage& average);
    ~WeightSwap();
    WeightSwap(const WeightSwap&) = delete;
    WeightSwap& operator=(const WeightSwap&) = delete;

   private:
    const WeightAverage& average_;
    std::vector<at::Tensor> weights_;
  };

 private:
  double decay_;
  std::vector<at::Tensor> parameters_;
  std::vector<NamedTensor> averages_;
  std::vector<at::Tensor> plain_averages_;  // the tensors of averages_ without names, for the foreach kernels
};

}  // namespace ddprun::trainer
