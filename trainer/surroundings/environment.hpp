// Reads this worker's rank, world size and rendezvous address from environment variables. ddprun and torchrun set RANK. If
// RANK is unset, the variables of mpirun, srun or PMIx are used, in this order
// (docs/internals/decisions/trainer/worker-environment.md). If none of these variables is set, the job has one worker.
#pragma once

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
  int generation = 0;       // number of the worker's first process group: the round in a multi-node job, else the restart count
  std::string master_addr;  // address of rank 0; empty if unknown, for example in a job of one worker without an agent
  int master_port = 0;
  bool use_agent_store = false;  // TORCHELASTIC_USE_AGENT_STORE: if true, every rank is a client of the agent's TCPStore
  std::string run_id;            // value of TORCHELASTIC_RUN_ID
  // The descriptor of the worker channel (DDPRUN_CHANNEL=fd:N); -1 if ddprun did not start this worker.
  int channel_fd = -1;
  std::string source;  // origin of the values: "ddprun", "torchrun", "slurm", "openmpi", "pmix" or "single"
};

using GetEnv = std::function<std::optional<std::string>(const std::string&)>;

// Returns the environment of a standby worker of ddprun, which has no rank yet. rank and local_rank are -1, and restart_count
// is not set. Throws UsageError if ddprun did not start this process.
WorkerEnvironment read_standby_environment(const GetEnv& get);
WorkerEnvironment read_standby_environment();  // uses the environment of this process

// Returns the environment of a worker. Throws UsageError if a value is missing, not a number or out of range. The message names
// the variable, its value and the expected range.
WorkerEnvironment read_environment(const GetEnv& get);
WorkerEnvironment read_environment();  // uses the environment of this process

}  // namespace ddprun::trainer
