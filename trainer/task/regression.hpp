// The task that predicts numbers. The model has one output per number, and the loss is the mean squared error. Batches are
// {inputs float32 [n, ...], numbers float32 [n, k]}.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Returns the task. Its metrics are "loss", the mean squared error, and "mean_absolute_error". Both are means over all samples
// and outputs, in the unit of the targets. For data.type "table", "baseline_loss" and "baseline_mean_absolute_error" are the
// same metrics for a prediction that is always the mean of the training rows.
std::unique_ptr<Task> regression(const TrainConfig& config);

}  // namespace ddprun::trainer
