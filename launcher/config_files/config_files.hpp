// Checks whether the files that a train.json names exist: the data set of data.type, a tokenizer, an exported model, the
// weights of model.init. `ddprun validate` and --dry-run call it, so that a typing mistake in data.dir is found before the job
// waits in a queue. Only names, kinds and permissions are checked; the worker reads the contents.
#pragma once

#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

// One line per problem, with the key and the path. `own_program`: the config belongs to a worker program with its own data,
// whose file names only the program knows.
std::vector<std::string> missing_files(const TrainConfig& config, bool own_program);

// Throws UsageError that lists all problems.
void require_files(const TrainConfig& config, bool own_program);

}  // namespace ddprun
