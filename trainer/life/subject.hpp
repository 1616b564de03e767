// The training task of a worker program, made from the config: a Task, and the samples for it. ddptrain uses
// chosen_by_config(). A user's program with its own main() passes a different Subject to run_worker_main() (worker.hpp). Such a
// program still uses all other parts of ddptrain: command line, agent channel, checkpoints, recovery.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/inflated_files.hpp"
#include "trainer/data/source.hpp"
#include "trainer/image_files/data_check.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Each function receives the whole config, and throws UsageError for errors in the config or in the data.
struct Subject {
  std::function<std::unique_ptr<Task>(const TrainConfig&)> make_task;
  // Describes the training samples. It reads only the headers of files. It may run on a different thread from `read`, and at
  // the same time.
  std::function<Description(const TrainConfig&)> describe;
  // Reads the data for this device, in a separate thread. A source that shares no memory between workers ignores the last
  // argument.
  std::function<Sources(const TrainConfig&, c10::Device, const InflatedFiles&)> read;
  // Returns lines for the user about data that may be unintended. Rank 0 prints them after `read` has returned. The function
  // may be empty.
  std::function<std::vector<std::string>(const TrainConfig&)> notes{};
  // Returns a check for damaged samples that starts before the first step. If the function is empty or returns null, there is
  // no check.
  std::function<std::unique_ptr<DataCheck>(const TrainConfig&, const DataCheckPlace&)> check{};
  // Keys of the section "task" in the config. make_task, describe and read find the values in config.task.
  std::vector<TaskKey> keys{};
  std::string name{};     // program name to display; if empty, the name of the executable file
  std::string version{};  // version of the program, in its author's numbering
  bool built_in = false;  // true for ddptrain's own subject, whose models and data the config selects
};

// Returns the Subject for image classification: classification() on the data of read_images().
Subject image_classification();
inline Subject pictures_into_classes() {
  return image_classification();
}  // former name of image_classification(), for existing programs

// Returns the task and data that model.type and data.type select: classification(), regression(), language_model() or
// exported_task(), with images, tokens, tables or tensors.
Subject chosen_by_config();

}  // namespace ddprun::trainer
