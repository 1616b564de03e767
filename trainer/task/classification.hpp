// The task that assigns a class to an image or a row of numbers. The loss is the cross entropy, and the metrics are "loss" and
// "accuracy". For data.type "table", "baseline_accuracy" is the accuracy of a prediction that is always the most frequent
// class. Batches are {images, labels} as in trainer/data/images.hpp.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Uses these keys of the config: `model`, `data`, `seed`, `label_smoothing`, `precision` and `channels_last`.
std::unique_ptr<Task> classification(const TrainConfig& config);

}  // namespace ddprun::trainer
