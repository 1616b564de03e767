// What a task measures over an evaluation: for each named figure a sum and the weight that it goes by; the figure is the
// quotient of both over all batches of all ranks. Sums stay on the device until they are read.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

class Figures {
 public:
  // All names at once, the same on each rank: one without a batch has figures too. Throws UsageError for a name that comes
  // twice or is reserved (common/base/figure.hpp).
  Figures(std::vector<std::string> names, c10::Device device);

  // `sum` is a scalar of any type on the device, a sum over the batch (not a mean), added up in double, so that the result does
  // not depend on how the set was cut. Throws UsageError for a name that was not given.
  void add(std::string_view name, const at::Tensor& sum, double weight);

  const std::vector<std::string>& names() const { return names_; }
  // Of each name in turn the sum and its weight, to be added up over ranks. Waits for the device.
  std::vector<double> sums_and_weights() const;

 private:
  std::vector<std::string> names_;
  at::Tensor sums_;  // double [names]
  std::vector<double> weights_;
};

// The names of what is measured of samples that are held out of training begin with this.
inline constexpr std::string_view kValidationPrefix = "validation_";

// The names of what an evaluation finds: a task's, and where the config holds samples out, the same with the prefix. Throws
// UsageError where one is then there twice.
std::vector<std::string> figures_of_evaluation(const TrainConfig& config, std::vector<std::string> of_task);

// Throws UsageError where the config goes by a figure that is not among a task's.
void require_figures(const TrainConfig& config, const std::vector<std::string>& figures);

}  // namespace ddprun::trainer
