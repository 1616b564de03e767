// Whether the files that a train.json names are there: the data set of data.type, a tokenizer, an exported model, the weights
// of model.init. `ddprun validate` and --dry-run call it, so that a typing mistake in data.dir shows before the job waits in a
// queue. Only names, kinds and permissions are looked at; the worker reads the contents.
#pragma once

#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

// One line for each problem, which names the key and the path. `own_program`: the config is of a worker program with data of
// its own, whose files have names that only it knows.
std::vector<std::string> missing_files(const TrainConfig& config, bool own_program);

// Throws UsageError with all of them.
void require_files(const TrainConfig& config, bool own_program);

}  // namespace ddprun
