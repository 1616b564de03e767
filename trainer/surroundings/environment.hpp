// This worker's place in the job, from its environment: torchrun's variables, else those of srun, mpirun and PMIx (decision 30,
// RANK is unset), else a job of one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace ddprun::trainer {

struct WorkerEnvironment {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int group_rank = 0;
  int group_world_size = 1;
  int restart_count = 0;
  int generation = 0;       // of the first group: the round in a multi-node job, else the restart count
  std::string master_addr;  // empty for a job of one worker without an agent
  int master_port = 0;
  bool use_agent_store = false;  // TORCHELASTIC_USE_AGENT_STORE: every rank is a client of the agent's TCPStore
  std::string run_id;            // TORCHELASTIC_RUN_ID
  int channel_fd = -1;           // DDPRUN_CHANNEL=fd:N; -1: not started by our agent
  std::string source;            // the variables that were used: "ddprun", "torchrun", "slurm", "openmpi", "pmix", "single"
};

using GetEnv = std::function<std::optional<std::string>(const std::string&)>;

// For a standby worker of ddprun, which has no rank yet: rank and local_rank are -1, and restart_count is unknown. Throws
// UsageError if ddprun did not start it.
WorkerEnvironment read_standby_environment(const GetEnv& get);
WorkerEnvironment read_standby_environment();  // of this process

// Throws UsageError for a value that is missing, not a number or out of range (names the variable, the value and the expected
// range).
WorkerEnvironment read_environment(const GetEnv& get);
WorkerEnvironment read_environment();  // of this process

}  // namespace ddprun::trainer
