// The metrics of an evaluation. Each metric has a name, a sum and a weight. The value of a metric is its sum over all batches
// of all ranks, divided by the weight of these batches. Sums stay on the device until the end, because reading a sum waits for
// the GPU.
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
  // Declares all metrics. The names must be the same on each rank, including a rank without batches, because the sums of all
  // ranks are added by position. Throws UsageError if a name is empty, occurs twice or is reserved (common/base/metric.hpp).
  Figures(std::vector<std::string> names, c10::Device device);

  // Adds the sum of a metric over a batch, not its mean. `sum` is a scalar of any type on the device. Sums are accumulated in
  // double, so that the division into batches has almost no effect on the result. Throws UsageError if `name` was not declared.
  void add(std::string_view name, const at::Tensor& sum, double weight);

  const std::vector<std::string>& names() const { return names_; }
  // Returns the sum and the weight of each metric, in the order of the names. The caller sums these numbers over the ranks. The
  // call waits for the device.
  std::vector<double> sums_and_weights() const;

 private:
  std::vector<std::string> names_;
  at::Tensor sums_;  // sum of each metric: dtype double, shape [number of names], on the device
  std::vector<double> weights_;
};

// The prefix of metrics on the validation samples, which are held out from the training set.
inline constexpr std::string_view kValidationPrefix = "validation_";

// Returns the names of all metrics of an evaluation: the metrics of the task, and the same names with kValidationPrefix if the
// config has validation samples. Throws UsageError if a name would occur twice.
std::vector<std::string> metrics_of_evaluation(const TrainConfig& config, std::vector<std::string> of_task);

// Throws UsageError if the config uses a metric that is not in `figures`.
void require_metrics(const TrainConfig& config, const std::vector<std::string>& figures);

}  // namespace ddprun::trainer
