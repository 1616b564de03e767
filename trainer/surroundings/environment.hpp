// Who this worker is, from its environment: torchrun's variables (decision 30: srun's, mpirun's and PMIx's when RANK is
// unset), else a job of one.
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
  int generation = 0;       // of this process' first group: the round on many machines, else the restart count
  std::string master_addr;  // empty for a job of one without an agent
  int master_port = 0;
  bool use_agent_store = false;  // TORCHELASTIC_USE_AGENT_STORE: every rank is a client of the agent's TCPStore
  std::string run_id;            // TORCHELASTIC_RUN_ID
  int channel_fd = -1;           // DDPRUN_CHANNEL=fd:N; -1: no agent of ours
  std::string source;            // which variables were used: "ddprun", "torchrun", "slurm", "openmpi", "pmix", "single"
};

using GetEnv = std::function<std::optional<std::string>(const std::string&)>;

// A standby worker of ddprun has no rank yet: rank and local_rank are -1, restart_count is not known either. Throws UsageError
// when it was not started by ddprun.
WorkerEnvironment read_standby_environment(const GetEnv& get);
WorkerEnvironment read_standby_environment();  // of the process

// Throws UsageError for a value that is missing, not a number or out of range (names variable, value and what was expected).
WorkerEnvironment read_environment(const GetEnv& get);
WorkerEnvironment read_environment();  // of the process

}  // namespace ddprun::trainer
