// An exponential moving average of the weights that are trained, as torch.optim.swa_utils.AveragedModel has it with
// multi_avg_fn=get_ema_multi_avg_fn(decay). Buffers are not averaged, as there: who evaluates uses the model's own. It is part
// of the training state (trainer/state/training_state.hpp), which counts its updates.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

class WeightAverage {
 public:
  // `parameters` stay shared with the model. The average begins as they are.
  WeightAverage(double decay, const std::vector<NamedTensor>& parameters);

  // After an optimizer's step. The first one copies the weights.
  void update(bool first);

  // By the parameters' names.
  const std::vector<NamedTensor>& tensors() const { return averages_; }

  // For as long as this lives, the model's weights are the average, and nothing may change them. Costs no copy.
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
  std::vector<at::Tensor> plain_averages_;  // the same, as the kernel takes them
};

}  // namespace ddprun::trainer
