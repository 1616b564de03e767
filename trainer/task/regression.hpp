// Predicts numbers: a model of the config with one output for each, and the mean squared error. Batches are {inputs float32 [n,
// ...], numbers float32 [n, k]}.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Its metrics are "loss", the mean squared error, and "mean_absolute_error", both over samples and outputs.
std::unique_ptr<Task> regression(const TrainConfig& config);

}  // namespace ddprun::trainer
