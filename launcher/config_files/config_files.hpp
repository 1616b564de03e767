// Checks whether the files that a train.json names exist: the data set of data.type, a tokenizer, an exported model, the
// weights of model.init. `ddprun validate` and --dry-run call it, so that a typing mistake in data.dir is found before the job
// waits in a queue. Only names, kinds and permissions are checked; the worker reads the contents.
#pragma once

#include <string>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

// Returns one line per problem, with the key and the path. `custom_program` is true if the config belongs to a worker program
// with its own data. Only that program knows the names of its files, so they are not checked.
std::vector<std::string> missing_files(const TrainConfig& config, bool custom_program);

// Throws a UsageError that lists all problems found by missing_files().
void require_files(const TrainConfig& config, bool custom_program);

}  // namespace ddprun
