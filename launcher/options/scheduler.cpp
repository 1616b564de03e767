// See scheduler.hpp.
//
// Note: which values are taken. --nnodes 1 or --standalone means this machine alone, even if the scheduler has started agents
// on other nodes. A node's rank is taken only together with the scheduler's address: Slurm's node 0 does not own an address
// that the user chose.
#include "launcher/options/scheduler.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/base/slurm_lists.hpp"
#include "common/system/host_name.hpp"
#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

// Higher step ids are the batch script, the external step and interactive allocations.
constexpr std::int64_t kMostSteps = 0xfffffff0;

class Reading {
 public:
  Reading(const Settings& given, const Environment& environment) : given_(given), environment_(environment) {}

  std::int64_t number(const char* name) const { return parse_whole(environment_(name).value_or("")).value_or(-1); }
  std::string text(const char* name) const { return environment_(name).value_or(""); }

  bool is_standalone() const { return given_.flag("standalone"); }
  bool one_machine_wanted() const {
    if (is_standalone()) return true;
    const std::string nodes = given_.text("nnodes");
    return given_.given("nnodes") &&
           parse_whole(nodes.substr(nodes.find(':') + 1)) == 1;  // without ':' find() returns npos, and npos + 1 is 0
  }
  bool is_static() const { return given_.text("rdzv-backend") == "static"; }
  bool knows_nodes() const { return given_.given("nnodes"); }

  void offer(const std::string& option, std::string value, const std::string& source) {
    if (!given_.given(option)) found.values.push_back({option, {std::move(value), source}});
  }

  // Adds the address at which agents meet, and this agent's rank, unless the user gave them.
  void offer_place(const std::string& master, const std::string& master_source, std::int64_t rank,
                   const std::string& rank_source) {
    if (!is_static()) return offer("rdzv-endpoint", master, master_source);
    if (given_.given("rdzv-endpoint")) return;
    if (!given_.given("master-addr") || given_.text("master-addr") == master)
      offer("node-rank", std::to_string(rank), rank_source);
    offer("master-addr", master, master_source);
  }

  SchedulerSettings found;

 private:
  const Settings& given_;
  const Environment& environment_;
};

bool in_step(const Reading& read) {
  const std::int64_t step = read.number("SLURM_STEP_ID");
  return step >= 0 && step < kMostSteps && read.number("SLURM_NODEID") >= 0;
}

// Whether each node has exactly one agent. If a node has more, the result is false if the user gave the number of agents
// (--nnodes above 1) or wants one job per task (--standalone). Otherwise it throws UsageError, also for a single node: each
// task would run the whole job and write the same checkpoints.
bool has_an_agent_a_node(const Reading& read) {
  const std::string tasks = read.text("SLURM_STEP_TASKS_PER_NODE");
  if (tasks.empty() || read.is_standalone()) return true;
  const std::vector<int> counts = expand_slurm_counts(tasks);
  if (std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; })) return true;
  if (read.knows_nodes() && !read.one_machine_wanted()) return false;
  throw UsageError("Slurm starts several tasks on a node (SLURM_STEP_TASKS_PER_NODE is " + tasks +
                   "), and each would be an agent with workers of its own. Use srun --ntasks-per-node=1, and --nproc-per-node "
                   "for the workers; or --standalone where each task is a job of its own");
}

void read_step(Reading& read) {
  if (const std::int64_t gpus = read.number("SLURM_GPUS_ON_NODE"); gpus > 0)
    read.offer("nproc-per-node", std::to_string(gpus), "Slurm's SLURM_GPUS_ON_NODE");
  const std::int64_t nodes = read.number("SLURM_STEP_NUM_NODES");
  if (!has_an_agent_a_node(read) || nodes <= 1 || read.one_machine_wanted()) return;
  read.offer("nnodes", std::to_string(nodes), "Slurm's SLURM_STEP_NUM_NODES");
  read.offer("rdzv-id", "slurm-" + read.text("SLURM_JOB_ID") + "." + read.text("SLURM_STEP_ID"),
             "Slurm's SLURM_JOB_ID and SLURM_STEP_ID");
  read.offer_place(first_slurm_host(read.text("SLURM_STEP_NODELIST")), "Slurm's SLURM_STEP_NODELIST",
                   read.number("SLURM_NODEID"), "Slurm's SLURM_NODEID");
}

void look_at_allocation(Reading& read) {
  const std::int64_t nodes = read.number("SLURM_JOB_NUM_NODES");
  if (nodes <= 1 || read.knows_nodes() || read.one_machine_wanted()) return;
  read.found.warnings.push_back("Slurm has given this job " + std::to_string(nodes) +
                                " nodes, and ddprun runs on this one only: srun ddprun ... starts it on each of them "
                                "(--nnodes 1 says that one is meant)");
}

// The host name of a pod in an indexed Job is JOB-INDEX, or JOB-INDEX.SERVICE.NAMESPACE.... with a headless service.
std::string name_of_first_pod(const std::string& full_name, const std::string& index) {
  const std::size_t dot = full_name.find('.');
  const std::string own = full_name.substr(0, dot);
  if (dot == std::string::npos || !own.ends_with("-" + index)) {
    throw UsageError("this pod of an indexed Job (JOB_COMPLETION_INDEX " + index + ") has the name '" + full_name +
                     "', by which other pods can't find the first one; expected JOB-" + index +
                     ".SERVICE...: give the Job's pods a headless service (subdomain: SERVICE in the template), or say "
                     "--master-addr");
  }
  return own.substr(0, own.size() - index.size()) + "0" + full_name.substr(dot);
}

// A pod has no variable with the number of pods. An indexed Job may also consist of many independent single-machine jobs.
void read_pod(Reading& read, const std::string& index, const Settings& given,
              const std::function<std::string()>& full_host_name) {
  if (!read.knows_nodes() || read.one_machine_wanted()) return;
  if (given.given("rdzv-endpoint")) return;
  const std::string source = "Kubernetes' JOB_COMPLETION_INDEX";
  if (given.given("master-addr") && read.is_static()) return read.offer("node-rank", index, source);
  read.offer_place(name_of_first_pod(full_host_name(), index), source, *parse_whole(index), source);
}

}  // namespace

SchedulerSettings scheduler_settings(const Settings& given, const Environment& environment,
                                     const std::function<std::string()>& full_host_name) {
  Reading read(given, environment);
  const std::string index = read.text("JOB_COMPLETION_INDEX");
  if (in_step(read)) {
    read_step(read);
  } else if (!read.text("SLURM_JOB_ID").empty()) {
    look_at_allocation(read);
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
