// Implementation of scheduler.hpp.
//
// Note: which values are used. The variables of a Slurm step and of mpirun describe this process itself, so they come first.
// The variables of SkyPilot, dstack and Kubernetes describe the machine or the pod. --nnodes 1 or --standalone means that the
// job uses only this machine, even if the scheduler has started agents on other nodes. The scheduler's rank of a node is used
// only together with the scheduler's address. If the user gave a different address, the node with Slurm rank 0 may not have
// that address.
#include "launcher/options/scheduler.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "common/base/error.hpp"
#include "common/base/slurm_lists.hpp"
#include "common/system/host_name.hpp"
#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

// Slurm uses higher step ids for the batch script, the external step and interactive allocations.
constexpr std::int64_t kMaxStepId = 0xfffffff0;

// The default ports of Slurm's steps. They are below the ephemeral ports of Linux (from 32768). Slurm (6817 to 6819), etcd,
// Prometheus and similar services use none of them by default.
constexpr int kLowestPort = 13000;
constexpr int kHighestPort = 28999;

class SchedulerReader {
 public:
  SchedulerReader(const Settings& given, const Environment& environment) : given_(given), environment_(environment) {}

  std::int64_t number(const char* name) const { return parse_whole(environment_(name).value_or("")).value_or(-1); }
  std::string text(const char* name) const { return environment_(name).value_or(""); }

  bool is_standalone() const { return given_.flag("standalone"); }
  bool wants_one_machine() const {
    if (is_standalone()) return true;
    const std::string nodes = given_.text("nnodes");
    return given_.given("nnodes") &&
           parse_whole(nodes.substr(nodes.find(':') + 1)) == 1;  // without ':', npos + 1 is 0, so the whole text is parsed
  }
  bool is_static() const { return given_.text("rdzv-backend") == "static"; }
  bool knows_nodes() const { return given_.given("nnodes"); }

  void offer(const std::string& option, std::string value, const std::string& source) {
    if (!given_.given(option)) found.values.push_back({option, {std::move(value), source}});
  }

  // A port, and the source of the value.
  struct Port {
    int number;
    std::string source;
  };
  // Adds the address at which the agents meet, its port, and this agent's rank, unless the user gave them. If `port` is
  // nullopt, no port is added, so the default of the option applies.
  void offer_place(const std::string& master, const std::string& master_source, std::int64_t rank,
                   const std::string& rank_source, const std::optional<Port>& port = {}) {
    if (!is_static()) {
      const std::string endpoint = port ? master + ":" + std::to_string(port->number) : master;
      return offer("rdzv-endpoint", endpoint, master_source);
    }
    if (given_.given("rdzv-endpoint")) return;
    if (!given_.given("master-addr") || given_.text("master-addr") == master) {
      if (rank < max_nodes()) offer("node-rank", std::to_string(rank), rank_source);
      if (port) offer("master-port", std::to_string(port->number), port->source);
    }
    offer("master-addr", master, master_source);
  }
  // Returns the address that the user gave; "" if there is none.
  std::string given_address() const {
    if (given_.given("rdzv-endpoint")) return given_.text("rdzv-endpoint");
    return given_.given("master-addr") ? given_.text("master-addr") : "";
  }
  // Returns the maximum in the user's --nnodes. A node whose Slurm rank is not below this maximum is a spare, so it gets no
  // --node-rank.
  std::int64_t max_nodes() const {
    const std::string nodes = given_.text("nnodes");
    return !given_.given("nnodes") ? std::numeric_limits<std::int64_t>::max()
                                   : parse_whole(nodes.substr(nodes.find(':') + 1)).value_or(0);
  }
  // Returns the ports of --port-range, or the default ports of Slurm's steps if the option is not given. make_plan() refuses
  // an invalid range later.
  std::pair<int, int> ports() const {
    constexpr std::int64_t kMaxPort = 65535;
    const std::string range = given_.text("port-range");
    const std::size_t dash = range.find('-');
    const auto low = parse_whole(range.substr(0, dash));
    const auto high = dash == std::string::npos ? std::nullopt : parse_whole(range.substr(dash + 1));
    if (!low || !high || *low < 1 || *high < *low || *high > kMaxPort) return {kLowestPort, kHighestPort};
    return {static_cast<int>(*low), static_cast<int>(*high)};
  }

  SchedulerSettings found;

 private:
  const Settings& given_;
  const Environment& environment_;
};

bool in_step(const SchedulerReader& read) {
  const std::int64_t step = read.number("SLURM_STEP_ID");
  return step >= 0 && step < kMaxStepId && read.number("SLURM_NODEID") >= 0;
}

// Returns true if each node of the step has exactly one agent. Several agents on a node are normally a mistake: each task
// would run the whole job and write the same checkpoints. In that case the function throws UsageError, even for a step on a
// single node. There are two exceptions. With --standalone each task is a separate job, and the result is true. With --nnodes
// above 1 the user has given the number of agents, and the result is false.
bool has_one_agent_per_node(const SchedulerReader& read) {
  const std::string tasks = read.text("SLURM_STEP_TASKS_PER_NODE");
  if (tasks.empty() || read.is_standalone()) return true;
  const std::vector<int> counts = expand_slurm_counts(tasks);
  if (std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; })) return true;
  if (read.knows_nodes() && !read.wants_one_machine()) return false;
  throw UsageError(
      "Slurm starts several tasks on a node (SLURM_STEP_TASKS_PER_NODE is " + tasks +
      "), and each task would start its own workers. Use #SBATCH --ntasks-per-node=1 (srun --ntasks-per-node=1), and "
      "set the number of workers with --nproc-per-node; or use --standalone if each task is a separate job");
}

// Returns the job id of the step. In a heterogeneous job, SLURM_JOB_ID contains the id of the first component in all
// components, and each component numbers its steps from 0. If the step runs in one component only, we therefore use the id of
// this component.
std::string job_of_step(const SchedulerReader& read) {
  const std::int64_t components = read.number("SLURM_HET_SIZE");
  constexpr std::int64_t kMaxComponents = 1000;
  for (std::int64_t i = 0; i < std::min(components, kMaxComponents); ++i) {
    const std::string ending = "_HET_GROUP_" + std::to_string(i);
    if (read.text(("SLURM_JOB_NODELIST" + ending).c_str()) == read.text("SLURM_STEP_NODELIST"))
      return read.text(("SLURM_JOB_ID" + ending).c_str());
  }
  return read.text("SLURM_JOB_ID");
}

// Offers one worker for each GPU of this task. SLURM_GPUS_PER_TASK is a number, or a type and a number: h100:4. It takes
// precedence over SLURM_GPUS_ON_NODE, because tasks may share the GPUs of the node.
void read_gpus(SchedulerReader& read) {
  const std::string per_task = read.text("SLURM_GPUS_PER_TASK");
  const auto number = parse_whole(per_task.substr(per_task.rfind(':') + 1));  // without ':', npos + 1 is 0
  if (number.value_or(0) > 0) {
    read.offer("nproc-per-node", std::to_string(*number), "Slurm's SLURM_GPUS_PER_TASK");
  } else if (const std::int64_t gpus = read.number("SLURM_GPUS_ON_NODE"); gpus > 0) {
    read.offer("nproc-per-node", std::to_string(gpus), "Slurm's SLURM_GPUS_ON_NODE");
  }
}

void read_step(SchedulerReader& read) {
  read_gpus(read);
  const std::int64_t nodes = read.number("SLURM_STEP_NUM_NODES");
  if (!has_one_agent_per_node(read) || nodes <= 1 || read.wants_one_machine()) return;
  read.offer("nnodes", std::to_string(nodes), "Slurm's SLURM_STEP_NUM_NODES");
  constexpr const char* kIds = "Slurm's SLURM_JOB_ID and SLURM_STEP_ID";
  const std::string job = job_of_step(read);
  read.offer("rdzv-id", "slurm-" + job + "." + read.text("SLURM_STEP_ID"), kIds);
  const auto [low, high] = read.ports();
  const int port = port_of_slurm_step(parse_whole(job).value_or(0), read.number("SLURM_STEP_ID"), low, high);
  read.offer_place(first_slurm_host(read.text("SLURM_STEP_NODELIST")), "Slurm's SLURM_STEP_NODELIST",
                   read.number("SLURM_NODEID"), "Slurm's SLURM_NODEID", SchedulerReader::Port{port, kIds});
}

void check_allocation(SchedulerReader& read) {
  const std::int64_t nodes = read.number("SLURM_JOB_NUM_NODES");
  if (nodes <= 1 || read.knows_nodes() || read.wants_one_machine()) return;
  read.found.warnings.push_back("Slurm has allocated " + std::to_string(nodes) +
                                " nodes to this job, but ddprun runs on this one only: start it on every node with srun ddprun "
                                "..., or set --nnodes 1 if one node is intended");
}

// The nodes of a job, as a scheduler describes them to each node.
struct NodesOfScheduler {
  std::string scheduler;    // for sources and messages, such as "SkyPilot"
  std::int64_t nodes = -1;  // number of nodes; -1: unknown
  std::string nodes_name;   // the environment variable that contains `nodes`; the members below ending in _name are similar
  std::int64_t rank = -1;   // rank of this node
  std::string rank_name;
  std::string master;  // address of the node with rank 0
  std::string master_name;
  std::string job;  // an id that is the same on all nodes; may be empty
  std::string job_name;
};

void offer_nodes(SchedulerReader& read, const NodesOfScheduler& found) {
  if (found.nodes <= 1 || read.wants_one_machine()) return;
  const auto source = [&](const std::string& name) { return found.scheduler + "'s " + name; };
  if (found.rank < 0 || found.rank >= found.nodes) {
    throw UsageError(found.rank_name + " is '" + read.text(found.rank_name.c_str()) + "', but " + found.nodes_name + " is " +
                     std::to_string(found.nodes) + ": expected a rank from 0 to " + std::to_string(found.nodes - 1) +
                     "; set both variables as " + found.scheduler + " does, or unset them");
  }
  read.offer("nnodes", std::to_string(found.nodes), source(found.nodes_name));
  if (!found.job.empty()) read.offer("rdzv-id", found.job, source(found.job_name));
  if (found.master.empty() && read.given_address().empty()) {
    throw UsageError(
        "the address of the node with rank 0 is unknown: " +
        (found.master_name.empty() ? "no variable of " + found.scheduler + " contains it" : found.master_name + " is not set") +
        "; add --master-addr with this address");
  }
  read.offer_place(found.master.empty() ? read.given_address() : found.master, source(found.master_name), found.rank,
                   source(found.rank_name));
}

void offer_workers(SchedulerReader& read, const char* variable, const std::string& scheduler) {
  if (const std::int64_t gpus = read.number(variable); gpus > 0)
    read.offer("nproc-per-node", std::to_string(gpus), scheduler + "'s " + variable);
}

void read_skypilot(SchedulerReader& read) {
  offer_workers(read, "SKYPILOT_NUM_GPUS_PER_NODE", "SkyPilot");
  const std::string addresses = read.text("SKYPILOT_NODE_IPS");  // one address on each line
  offer_nodes(read, {.scheduler = "SkyPilot",
                     .nodes = read.number("SKYPILOT_NUM_NODES"),
                     .nodes_name = "SKYPILOT_NUM_NODES",
                     .rank = read.number("SKYPILOT_NODE_RANK"),
                     .rank_name = "SKYPILOT_NODE_RANK",
                     .master = addresses.substr(0, addresses.find('\n')),
                     .master_name = "SKYPILOT_NODE_IPS",
                     .job = read.text("SKYPILOT_TASK_ID"),
                     .job_name = "SKYPILOT_TASK_ID"});
}

void read_dstack(SchedulerReader& read) {
  offer_workers(read, "DSTACK_GPUS_PER_NODE", "dstack");
  offer_nodes(read, {.scheduler = "dstack",
                     .nodes = read.number("DSTACK_NODES_NUM"),
                     .nodes_name = "DSTACK_NODES_NUM",
                     .rank = read.number("DSTACK_NODE_RANK"),
                     .rank_name = "DSTACK_NODE_RANK",
                     .master = read.text("DSTACK_MASTER_NODE_IP"),
                     .master_name = "DSTACK_MASTER_NODE_IP",
                     .job = read.text("DSTACK_RUN_NAME"),
                     .job_name = "DSTACK_RUN_NAME"});
}

// mpirun starts one process for each slot, so an agent on each node needs -N 1. No variable of Open MPI contains the address of
// rank 0. In a Slurm allocation, mpirun places rank 0 on the first node.
void read_openmpi(SchedulerReader& read) {
  const std::int64_t agents = read.number("OMPI_COMM_WORLD_SIZE");
  if (read.is_standalone() || agents <= 1) return;
  if (read.number("OMPI_COMM_WORLD_LOCAL_SIZE") > 1) {
    if (read.knows_nodes() && !read.wants_one_machine()) return;
    throw UsageError("mpirun starts " + read.text("OMPI_COMM_WORLD_LOCAL_SIZE") +
                     " processes on a node (OMPI_COMM_WORLD_LOCAL_SIZE), and each of them would start its own workers. Use "
                     "mpirun -N 1 ddprun ..., and set the number of workers with --nproc-per-node; or use --standalone if each "
                     "process is a separate job");
  }
  const std::string given = read.given_address();
  const std::string list = given.empty() ? read.text("SLURM_JOB_NODELIST") : "";
  offer_nodes(read, {.scheduler = "mpirun",
                     .nodes = agents,
                     .nodes_name = "OMPI_COMM_WORLD_SIZE",
                     .rank = read.number("OMPI_COMM_WORLD_RANK"),
                     .rank_name = "OMPI_COMM_WORLD_RANK",
                     .master = list.empty() ? given : first_slurm_host(list),
                     .master_name = list.empty() ? "" : "SLURM_JOB_NODELIST",
                     .job = "",
                     .job_name = ""});
}

// Returns the host name of the first pod of an indexed Job. A pod's own name is JOB-INDEX, or JOB-INDEX.SERVICE.NAMESPACE....
// with a headless service.
std::string name_of_first_pod(const std::string& full_name, const std::string& index) {
  const std::size_t dot = full_name.find('.');
  const std::string own = full_name.substr(0, dot);
  if (dot == std::string::npos || !own.ends_with("-" + index)) {
    throw UsageError(
        "the name of the first pod cannot be derived from the name '" + full_name + "' of this pod (JOB_COMPLETION_INDEX " +
        index + "): expected JOB-" + index +
        ".SERVICE...; give the Job's pods a headless service (subdomain: SERVICE in the template), or set --master-addr");
  }
  return own.substr(0, own.size() - index.size()) + "0" + full_name.substr(dot);
}

// Reads the index of a pod, but only if the user gave --nnodes. No variable contains the number of pods. If --nnodes is not
// given, the pods of an indexed Job may also be independent jobs on one machine each.
void read_pod(SchedulerReader& read, const std::string& index, const Settings& given,
              const std::function<std::string()>& full_host_name) {
  if (!read.knows_nodes() || read.wants_one_machine()) return;
  if (given.given("rdzv-endpoint")) return;
  const std::string source = "Kubernetes' JOB_COMPLETION_INDEX";
  if (given.given("master-addr") && read.is_static()) return read.offer("node-rank", index, source);
  read.offer_place(name_of_first_pod(full_host_name(), index), source, *parse_whole(index), source);
}

}  // namespace

int port_of_slurm_step(std::int64_t job, std::int64_t step, int low, int high) {
  // Jobs with consecutive ids get consecutive ports, and often run on the same nodes. So the ports of two steps of one job are
  // far apart.
  constexpr std::int64_t kStepDistance = 6101;
  constexpr std::int64_t kMaxId = std::int64_t{1} << 40;
  const std::int64_t place =
      std::clamp<std::int64_t>(job, 0, kMaxId) + std::clamp<std::int64_t>(step, 0, kMaxId) * kStepDistance;
  return low + static_cast<int>(place % (high - low + 1));
}

SchedulerSettings scheduler_settings(const Settings& given, const Environment& environment,
                                     const std::function<std::string()>& full_host_name) {
  SchedulerReader read(given, environment);
  const std::string index = read.text("JOB_COMPLETION_INDEX");
  if (!read.text("OMPI_COMM_WORLD_RANK").empty()) {
    // Open MPI's variables are read before Slurm's variables. In a Slurm allocation, mpirun starts a daemon on each node as a
    // Slurm step. So the agents also inherit the variables of this step.
    read_openmpi(read);
  } else if (in_step(read)) {
    read_step(read);
  } else if (!read.text("SKYPILOT_NODE_RANK").empty()) {
    read_skypilot(read);
  } else if (!read.text("DSTACK_NODE_RANK").empty()) {
    read_dstack(read);
  } else if (!read.text("SLURM_JOB_ID").empty()) {
    check_allocation(read);
  } else if (parse_whole(index).value_or(-1) >= 0) {
    read_pod(read, index, given, full_host_name);
  }
  return std::move(read.found);
}

void adopt_scheduler_settings(Arguments& arguments, const Environment& environment) {
  SchedulerSettings found = scheduler_settings(arguments.settings, environment, full_host_name);
  for (auto& [option, setting] : found.values) arguments.settings.adopt(option, std::move(setting));
  arguments.warnings = std::move(found.warnings);
}

}  // namespace ddprun
