// Pictures into classes by mlp, cnn or resnet18: cross entropy, and as figures the loss and the accuracy. Batches are {images,
// labels} as trainer/data/pictures.hpp has them.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Of the config it reads `model`, `data.classes`, `seed`, `label_smoothing`, `precision` and `channels_last`.
std::unique_ptr<Task> classification(const TrainConfig& config);

}  // namespace ddprun::trainer
