// Implementation of environment.hpp. Open MPI's variables are checked before Slurm's variables. Inside a Slurm allocation,
// mpirun starts one daemon per node as a Slurm task. All ranks of a node inherit that daemon's Slurm variables, which do not
// identify them.
#include "trainer/surroundings/environment.hpp"

#include <cstdlib>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/numbers.hpp"
#include "common/base/slurm_lists.hpp"

namespace ddprun::trainer {
namespace {

constexpr int kDefaultPort = 29500;  // the default of torchrun
constexpr int kMaxRanks = 1 << 24;
constexpr std::int64_t kMaxSlurmSteps = 0xfffffff0;  // larger IDs are reserved; srun never uses them

class Reader {
 public:
  explicit Reader(const GetEnv& get) : get_(get) {}

  std::optional<std::string> text(const std::string& name) const {
    auto value = get_(name);
    if (value && value->empty()) return std::nullopt;
    return value;
  }

  std::optional<int> number(const std::string& name, int lowest, int highest) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto parsed = exact_number<std::int64_t>(*value);
    if (!parsed || *parsed < lowest || *parsed > highest) {
      throw UsageError("the environment variable " + name + " is \"" + *value + "\"; expected a whole number from " +
                       std::to_string(lowest) + " to " + std::to_string(highest) +
                       ". Unset it, or start the workers with ddprun, torchrun, srun or mpirun, which set it");
    }
    return static_cast<int>(*parsed);
  }

  int required(const std::string& name, int lowest, int highest, const std::string& because_of) const {
    const auto value = number(name, lowest, highest);
    if (!value) {
      throw UsageError("the environment variable " + name + " is not set, but " + because_of +
                       " is set; expected a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest) +
                       ". Set both or neither");
    }
    return *value;
  }

 private:
  const GetEnv& get_;
};

void read_master(const Reader& read, WorkerEnvironment& environment) {
  environment.master_addr = read.text("MASTER_ADDR").value_or("");
  environment.master_port = read.number("MASTER_PORT", 1, 65535).value_or(0);
}

// Reads the values that are equal for all workers of a node.
void read_job(const Reader& read, WorkerEnvironment& environment) {
  environment.group_world_size = read.number("GROUP_WORLD_SIZE", 1, kMaxRanks).value_or(1);
  environment.group_rank = read.number("GROUP_RANK", 0, kMaxRanks).value_or(0);
  environment.use_agent_store = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  environment.run_id = read.text("TORCHELASTIC_RUN_ID").value_or("");
  read_master(read, environment);
}

// Reads torchrun's variables. RANK and WORLD_SIZE are required, as for PyTorch's env:// method. The defaults of the other
// variables are for a job that was started by hand.
void read_torchrun(const Reader& read, WorkerEnvironment& environment) {
  environment.source = environment.channel_fd >= 0 ? "ddprun" : "torchrun";
  environment.world_size = read.required("WORLD_SIZE", 1, kMaxRanks, "RANK");
  environment.rank = read.required("RANK", 0, environment.world_size - 1, "WORLD_SIZE");
  const auto local_world_size = read.number("LOCAL_WORLD_SIZE", 1, environment.world_size);
  environment.local_rank = read.number("LOCAL_RANK", 0, local_world_size.value_or(environment.world_size) - 1).value_or(0);
  environment.local_world_size = local_world_size.value_or(environment.local_rank + 1);
  environment.restart_count = read.number("TORCHELASTIC_RESTART_COUNT", 0, kMaxRanks).value_or(0);
  environment.generation = read.number("DDPRUN_GENERATION", 0, kMaxRanks).value_or(environment.restart_count);
  read_job(read, environment);
}

// Sets the master's address and port if the environment does not define them. The address is loopback if all ranks are on one
// node. Otherwise the address stays empty, and the user must set it.
void default_master(WorkerEnvironment& environment) {
  if (environment.master_port == 0) environment.master_port = kDefaultPort;
  if (environment.master_addr.empty() && environment.local_world_size == environment.world_size) {
    environment.master_addr = "127.0.0.1";
  }
}

void read_openmpi(const Reader& read, WorkerEnvironment& environment) {
  environment.source = "openmpi";
  environment.world_size = read.required("OMPI_COMM_WORLD_SIZE", 1, kMaxRanks, "OMPI_COMM_WORLD_RANK");
  environment.rank = read.required("OMPI_COMM_WORLD_RANK", 0, environment.world_size - 1, "OMPI_COMM_WORLD_SIZE");
  environment.local_world_size = read.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, environment.world_size).value_or(1);
  environment.local_rank = read.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, environment.local_world_size - 1).value_or(0);
  read_master(read, environment);
  default_master(environment);
}

bool in_slurm_step(const Reader& read) {
  const auto step = exact_number<std::int64_t>(read.text("SLURM_STEP_ID").value_or(""));
  return read.text("SLURM_PROCID") && step && *step >= 0 && *step < kMaxSlurmSteps;
}

void read_slurm(const Reader& read, WorkerEnvironment& environment) {
  environment.source = "slurm";
  const char* const size_variable = read.text("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  environment.world_size = read.required(size_variable, 1, kMaxRanks, "SLURM_PROCID");
  environment.rank = read.required("SLURM_PROCID", 0, environment.world_size - 1, size_variable);
  environment.local_rank = read.number("SLURM_LOCALID", 0, environment.world_size - 1).value_or(0);
  const char* const nodes_variable = read.text("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  environment.group_world_size = read.number(nodes_variable, 1, kMaxRanks).value_or(1);
  environment.group_rank = read.number("SLURM_NODEID", 0, environment.group_world_size - 1).value_or(0);
  environment.restart_count = read.number("SLURM_RESTART_COUNT", 0, kMaxRanks).value_or(0);
  environment.local_world_size = environment.local_rank + 1;
  const char* const tasks_variable =
      read.text("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  if (const auto tasks = read.text(tasks_variable)) {
    const auto counts = expand_slurm_counts(*tasks);
    const auto node = static_cast<std::size_t>(environment.group_rank);
    if (node >= counts.size() || counts[node] <= environment.local_rank || counts[node] > environment.world_size) {
      throw UsageError("the environment variable " + std::string(tasks_variable) + " is \"" + *tasks +
                       "\", which does not match task " + std::to_string(environment.local_rank) + " of node " +
                       std::to_string(environment.group_rank) + ". Start the workers with srun, or unset SLURM_PROCID");
    }
    environment.local_world_size = counts[node];
  } else if (environment.group_world_size == 1) {
    environment.local_world_size = environment.world_size;
  }
  read_master(read, environment);
  // The master is rank 0's host, which is the first node of the Slurm step. SLURM_LAUNCH_NODE_IPADDR is not used, because it is
  // the host on which srun was called.
  if (environment.master_addr.empty() && environment.local_world_size != environment.world_size) {
    const char* const list_variable = read.text("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    if (const auto list = read.text(list_variable)) environment.master_addr = first_slurm_host(*list);
  }
  default_master(environment);
}

void read_pmix(const Reader& read, WorkerEnvironment& environment) {
  environment.source = "pmix";
  const char* const size_variable = read.text("PMIX_SIZE") ? "PMIX_SIZE" : "WORLD_SIZE";
  environment.world_size = read.required(size_variable, 1, kMaxRanks, "PMIX_RANK");
  environment.rank = read.required("PMIX_RANK", 0, environment.world_size - 1, size_variable);
  const auto local_world_size = read.number("LOCAL_WORLD_SIZE", 1, environment.world_size);
  environment.local_rank = read.number("LOCAL_RANK", 0, local_world_size.value_or(environment.world_size) - 1).value_or(0);
  environment.local_world_size = local_world_size.value_or(environment.local_rank + 1);
  read_master(read, environment);
  default_master(environment);
}

int read_channel(const Reader& read) {
  const auto value = read.text("DDPRUN_CHANNEL");
  if (!value) return -1;
  const auto fd = value->starts_with("fd:") ? exact_number<std::int64_t>(std::string_view(*value).substr(3)) : std::nullopt;
  if (!fd || *fd < 3 || *fd > kMaxRanks) {
    throw UsageError("the environment variable DDPRUN_CHANNEL is \"" + *value +
                     "\"; expected \"fd:N\" with N of at least 3. ddprun sets it for its workers; unset it elsewhere");
  }
  return static_cast<int>(*fd);
}

std::optional<std::string> variable_of_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (!value) return std::nullopt;
  return value;
}

}  // namespace

WorkerEnvironment read_environment(const GetEnv& get) {
  const Reader read(get);
  WorkerEnvironment environment;
  environment.channel_fd = read_channel(read);
  if (read.text("RANK")) {
    read_torchrun(read, environment);
  } else if (read.text("OMPI_COMM_WORLD_RANK")) {
    read_openmpi(read, environment);
  } else if (in_slurm_step(read)) {
    read_slurm(read, environment);
  } else if (read.text("PMIX_RANK")) {
    read_pmix(read, environment);
  } else {
    environment.source = "single";
  }
  return environment;
}

WorkerEnvironment read_standby_environment(const GetEnv& get) {
  const Reader read(get);
  WorkerEnvironment environment;
  environment.channel_fd = read_channel(read);
  if (environment.channel_fd < 0) {
    throw UsageError(
        "--standby needs a connection to a ddprun agent, but the environment variable DDPRUN_CHANNEL is not set: use ddprun "
        "--standby N");
  }
  environment.source = "ddprun";
  environment.rank = environment.local_rank = -1;
  environment.world_size = read.required("WORLD_SIZE", 1, kMaxRanks, "DDPRUN_CHANNEL");
  environment.local_world_size = read.required("LOCAL_WORLD_SIZE", 1, environment.world_size, "DDPRUN_CHANNEL");
  read_job(read, environment);
  return environment;
}

WorkerEnvironment read_environment() {
  return read_environment(variable_of_process);
}

WorkerEnvironment read_standby_environment() {
  return read_standby_environment(variable_of_process);
}

}  // namespace ddprun::trainer
