#include "trainer/optim/weight_average.hpp"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <c10/core/GradMode.h>

namespace ddprun::trainer {
namespace {

std::vector<at::Tensor> detached(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> plain;
  plain.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) plain.push_back(tensor.detach());
  return plain;
}

}  // namespace

WeightAverage::WeightAverage(double decay, const std::vector<NamedTensor>& parameters) : decay_(decay) {
  for (const NamedTensor& parameter : parameters) {
    parameters_.push_back(parameter.tensor);
    plain_averages_.push_back(parameter.tensor.detach().clone());
    averages_.push_back({parameter.name, plain_averages_.back()});
  }
}

void WeightAverage::update(bool first) {
  const c10::NoGradGuard no_grad;
  const std::vector<at::Tensor> weights = detached(parameters_);
  if (first) {
    at::_foreach_copy_(plain_averages_, weights);
  } else {
    at::_foreach_lerp_(plain_averages_, weights, 1 - decay_);
  }
}

WeightAverage::WeightSwap::WeightSwap(const WeightAverage& average)
    : average_(average), weights_(detached(average.parameters_)) {
  for (std::size_t i = 0; i < weights_.size(); ++i) average_.parameters_[i].set_data(average_.plain_averages_[i]);
}

WeightAverage::WeightSwap::~WeightSwap() {
  for (std::size_t i = 0; i < weights_.size(); ++i) average_.parameters_[i].set_data(weights_[i]);
}

}  // namespace ddprun::trainer
