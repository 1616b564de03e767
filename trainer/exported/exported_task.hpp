// The task of an exported model: its loss and its figures are in its graphs. The model of "model": {"type": "exported"}.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Of the config it reads `model.path`. Every operator is looked up here; the checked batch is run with the first module that is
// made. Throws UsageError for a folder that is not as the exporter writes it.
std::unique_ptr<Task> exported_task(const TrainConfig& config);

}  // namespace ddprun::trainer
