// An exponential moving average of the trained weights, like torch.optim.swa_utils.AveragedModel with
// multi_avg_fn=get_ema_multi_avg_fn(decay). Buffers are not averaged, as in PyTorch: an evaluation uses the model's own. The
// average is part of the training state (trainer/state/training_state.hpp), which counts its updates.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

class WeightAverage {
 public:
  // `parameters` stay shared with the model. The average begins with their current values.
  WeightAverage(double decay, const std::vector<NamedTensor>& parameters);

  // Call after each step of the optimizer. The first call copies the weights.
  void update(bool first);

  // The averages, under the names of their parameters.
  const std::vector<NamedTensor>& tensors() const { return averages_; }

  // While it exists, the model's weights are the average, and must not be changed. Costs no copy.
  class InPlaceOfWeights {
   public:
    explicit InPlaceOfWeights(const WeightAverage& average);
    ~InPlaceOfWeights();
    InPlaceOfWeights(const InPlaceOfWeights&) = delete;
    InPlaceOfWeights& operator=(const InPlaceOfWeights&) = delete;

   private:
    const WeightAverage& average_;
    std::vector<at::Tensor> weights_;
  };

 private:
  double decay_;
  std::vector<at::Tensor> parameters_;
  std::vector<NamedTensor> averages_;
  std::vector<at::Tensor> plain_averages_;  // the same tensors, as a list for the kernel
};

}  // namespace ddprun::trainer
