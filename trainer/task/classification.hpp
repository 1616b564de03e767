// Classifies images with mlp, cnn or resnet18: cross entropy loss, with the metrics loss and accuracy. Batches are {images,
// labels} as in trainer/data/pictures.hpp.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Reads `model`, `data.classes`, `seed`, `label_smoothing`, `precision` and `channels_last` of the config.
std::unique_ptr<Task> classification(const TrainConfig& config);

}  // namespace ddprun::trainer
