// Claims the run directory, and checks that all ranks train the same run. Under ddprun, the agent opens and locks the run
// directory before any worker starts. Under torchrun or srun, or without a launcher, rank 0 opens and locks the directory, and
// sends the result to the other ranks. In all cases, the ranks compare their configs, models and data lengths.
#pragma once

#include <filesystem>
#include <string>

#include "common/config/train_config.hpp"
#include "common/run_directory/run_directory.hpp"
#include "trainer/data/run_length.hpp"
#include "trainer/parallel/peers.hpp"

namespace ddprun::trainer {

struct RunClaim {
  RunLayout layout;
  bool finished = false;  // true if the last step of the config is finished and saved
};

// Opens and locks the run directory on rank 0. All ranks must call this. If rank 0 cannot open or lock the directory, every
// rank throws: rank 0 the original error, and the other ranks a UsageError. The lock is held until the process exits.
RunClaim claim_run_directory(const std::filesystem::path& root, const TrainConfig& config, const Peers& peers);

// Writes the config to the run directory if the file is missing. Under ddprun, rank 0 calls this function. Usually the
// coordinator's agent has already written the config. But if the nodes share no disk, rank 0 may be on another node. If the
// run is later started on that node, it can use the checkpoints of the node only if the config is there. Throws
// std::system_error.
void write_missing_config(const RunLayout& layout, const TrainConfig& config);

// Writes the column plan of a table, as JSON, to the run directory unless the file already has this content. Resumed runs,
// evaluations and predictions use the stored plan. Does nothing if `plan` is empty. Throws std::system_error.
void write_columns(const RunLayout& layout, const std::string& plan);

// Throws UsageError if the config of this rank differs from the config of rank 0. All ranks must call this. Ignores keys that
// may differ between nodes, such as data.dir, and keys that do not affect the communication between ranks.
void agree_on_config(const TrainConfig& config, const Peers& peers);

// Throws UsageError if `fingerprint` differs from the value on rank 0. All ranks must call this. `fingerprint` belongs to the
// exported model, and is empty on all ranks for other models.
void agree_on_model(const std::string& fingerprint, const Peers& peers);

// All ranks must call this. `plan` is the column plan of a table as JSON, and is empty on all ranks for other data. Throws
// UsageError on every rank if the plans differ, because the ranks would train on different inputs.
void agree_on_columns(const std::string& plan, const Peers& peers);

// Throws UsageError on every rank if the ranks have different numbers of training samples. After the same number of steps, such
// ranks would be at different positions in the data. All ranks must call this.
void agree_on_length(const RunLength& length, const Peers& peers);

}  // namespace ddprun::trainer
