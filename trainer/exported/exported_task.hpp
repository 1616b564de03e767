// The task of an exported model ("model": {"type": "exported"}). The graphs of the model compute the loss and the metrics.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Reads the folder `model.path` of the config. Looks up every operator of the graphs. The first make_module() also checks the
// model's results (checked_batch.hpp). Throws UsageError if the folder was not written by the exporter.
std::unique_ptr<Task> exported_task(const TrainConfig& config);

}  // namespace ddprun::trainer
