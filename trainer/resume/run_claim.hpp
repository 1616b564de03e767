// Whose run directory it is. Under ddprun the agent has opened and locked it before any worker started; under torchrun, srun or
// alone rank 0 does, and the others hear its verdict. Either way the ranks make sure that they are there for the same training.
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
  bool finished = false;  // the config's last step is done and saved
};

// Collective. Throws UsageError on every rank when rank 0 can't have the directory. The lock is held until the process ends.
RunClaim claim_run_directory(const std::filesystem::path& root, const TrainConfig& config, const Peers& peers);

// Under an agent, by rank 0: where nodes share no disk it may have come to one whose agent never led the job, and what is saved
// there from now on needs the config beside it, or no start could go on from it. Does nothing where there is one. Throws
// std::system_error when it can't be written.
void keep_config(const RunLayout& layout, const TrainConfig& config);

// Collective. Throws UsageError when this rank was given another config than rank 0. Keys may differ that are each node's own,
// such as data.dir, and those from which no exchange between ranks follows.
void agree_on_config(const TrainConfig& config, const Peers& peers);

// Collective, for ranks that all have the fingerprint of an exported model or all have none. Throws UsageError where it is
// another one than rank 0's.
void agree_on_model(const std::string& fingerprint, const Peers& peers);

// Collective. Throws UsageError on every rank when they have unlike numbers of training samples: each would be elsewhere in the
// data after the same number of steps.
void agree_on_length(const RunLength& length, const Peers& peers);

}  // namespace ddprun::trainer
