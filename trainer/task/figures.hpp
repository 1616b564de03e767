// Metrics of a task over an evaluation. Each named metric has a sum and a weight; its value is their quotient over all batches
// of all ranks. Sums stay on the device until they are read.
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
  // Takes all names at once, the same on each rank, since a rank without a batch needs them too. Throws UsageError for a name
  // that occurs twice or is reserved (common/base/figure.hpp).
  Figures(std::vector<std::string> names, c10::Device device);

  // `sum`: a scalar of any type on the device, a sum over the batch and not a mean. It is accumulated in double, so that the
  // result does not depend on the split into batches. Throws UsageError for an unknown name.
  void add(std::string_view name, const at::Tensor& sum, double weight);

  const std::vector<std::string>& names() const { return names_; }
  // Sum and weight of each name in order, for a sum over ranks. Waits for the device.
  std::vector<double> sums_and_weights() const;

 private:
  std::vector<std::string> names_;
  at::Tensor sums_;  // double [names]
  std::vector<double> weights_;
};

// Prefix of metrics over the held-out training samples.
inline constexpr std::string_view kValidationPrefix = "validation_";

// Names of an evaluation's metrics: those of the task, and the same with the prefix if the config holds samples out. Throws
// UsageError if a name would occur twice.
std::vector<std::string> figures_of_evaluation(const TrainConfig& config, std::vector<std::string> of_task);

// Throws UsageError if the config uses a metric that the task lacks.
void require_figures(const TrainConfig& config, const std::vector<std::string>& figures);

}  // namespace ddprun::trainer
