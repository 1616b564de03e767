// The training task of a worker program, made from the config: a Task, and the samples for it. ddptrain uses
// chosen_by_config(). A program with its own main() passes another Subject to run_worker_main() (worker.hpp). It keeps all
// other parts of ddptrain: command line, channel, checkpoints, recovery.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/inflated_files.hpp"
#include "trainer/data/source.hpp"
#include "trainer/picture_files/data_check.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Each function gets the whole config, and throws UsageError for errors in it or in the data.
struct Subject {
  std::function<std::unique_ptr<Task>(const TrainConfig&)> make_task;
  // Describes the training samples from headers alone. Called on another thread, before `read` has ended.
  std::function<Description(const TrainConfig&)> describe;
  // Reads the data for that device, in a separate thread. A source that shares no memory between workers ignores the last
  // argument.
  std::function<Sources(const TrainConfig&, c10::Device, const InflatedFiles&)> read;
  // Lines for the user about data that may be unintended. Rank 0 calls it after `read` has ended. Empty: none.
  std::function<std::vector<std::string>(const TrainConfig&)> notes{};
  // Returns a check for damaged samples that starts before the first step. Empty, or null result: no check is needed.
  std::function<std::unique_ptr<DataCheck>(const TrainConfig&, const DataCheckPlace&)> check{};
  // Keys of the config's section "task"; make_task, describe and read find their values in config.task.
  std::vector<TaskKey> keys{};
  std::string name{};     // of the program, for display; empty: its file name
  std::string version{};  // of the program, as its author numbers it
  bool built_in = false;  // ddptrain's own, with the models and data that a config can name
};

// classification() with the data of read_pictures().
Subject pictures_into_classes();

// The task and data that model.type and data.type select: classification(), regression(), language_model() or exported_task(),
// with images, tokens, tables or tensors.
Subject chosen_by_config();

}  // namespace ddprun::trainer
