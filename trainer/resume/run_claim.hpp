// Claims the run directory. Under ddprun the agent opens and locks it before any worker starts. Under torchrun, srun or alone,
// rank 0 does that and sends the result to the others. In both cases the ranks verify that they train the same run.
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
  bool finished = false;  // the config's last step is finished and saved
};

// Collective. Throws UsageError on every rank if rank 0 cannot have the directory. The lock is held until the process ends.
RunClaim claim_run_directory(const std::filesystem::path& root, const TrainConfig& config, const Peers& peers);

// Called by rank 0 under an agent. Without a shared disk, rank 0 may be on a node whose agent never led the job, so its run
// directory lacks the config. No start could continue from checkpoints saved there. Does nothing if a config exists. Throws
// std::system_error if it cannot be written.
void keep_config(const RunLayout& layout, const TrainConfig& config);

// Collective. Throws UsageError if this rank has another config than rank 0. Keys may differ if they belong to a node, such as
// data.dir, or if no exchange between ranks depends on them.
void agree_on_config(const TrainConfig& config, const Peers& peers);

// Collective. Either all ranks have the fingerprint of an exported model, or none has. Throws UsageError if it differs from
// rank 0's.
void agree_on_model(const std::string& fingerprint, const Peers& peers);

// Collective. Throws UsageError on every rank if their numbers of training samples differ: after the same number of steps each
// would be at another position in the data.
void agree_on_length(const RunLength& length, const Peers& peers);

}  // namespace ddprun::trainer
