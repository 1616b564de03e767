// What a worker program trains, made from the config: a task, and the samples that it learns from. ddptrain's is
// chosen_by_config(); a program with another main() gives run_worker_main() another one (worker.hpp), and has all the rest
// of ddptrain: command line, channel, checkpoints, recovery.
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

// Each is called with the whole config and throws UsageError for what is wrong with it or with the data.
struct Subject {
  std::function<std::unique_ptr<Task>(const TrainConfig&)> make_task;
  // Of the training samples, from headers alone: called before `read` has ended, on another thread.
  std::function<Description(const TrainConfig&)> describe;
  // On a thread of its own, for that device. Who needs no memory that the workers of a machine share ignores the last one.
  std::function<Sources(const TrainConfig&, c10::Device, const InflatedFiles&)> read;
  // Lines for the user about data that may not be meant as it is. Rank 0 calls it, once `read` has ended. Empty: none.
  std::function<std::vector<std::string>(const TrainConfig&)> notes{};
  // Looks for damaged samples, from before the first step on. Empty, or a null pointer: they need no check.
  std::function<std::unique_ptr<DataCheck>(const TrainConfig&, const DataCheckPlace&)> check{};
  // Keys of the config's section "task"; make_task, describe and read find their values in config.task.
  std::vector<TaskKey> keys{};
  std::string name{};     // of the program, for people; empty: its file's
  std::string version{};  // of the program, as its author counts
  bool built_in = false;  // ddptrain's, which has the models and the data that a config can name
};

// classification() of read_pictures().
Subject pictures_into_classes();

// What model.type and data.type say: classification(), regression(), language_model() or exported_task(), of pictures, tokens,
// tables or tensors.
Subject chosen_by_config();

}  // namespace ddprun::trainer
