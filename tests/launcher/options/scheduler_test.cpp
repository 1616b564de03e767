// Tests which settings an agent takes from a Slurm step or a Kubernetes pod. Options of the user must take priority.
#include "launcher/options/scheduler.hpp"

#include <gtest/gtest.h>

#include <map>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

using Values = std::map<std::string, std::string>;

const Values kStep{{"SLURM_JOB_ID", "17"},
                   {"SLURM_STEP_ID", "0"},
                   {"SLURM_NODEID", "1"},
                   {"SLURM_STEP_NUM_NODES", "2"},
                   {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                   {"SLURM_STEP_NODELIST", "n[08-09]"}};
const Values kPod{{"JOB_COMPLETION_INDEX", "2"}};

Environment environment_of(const Values& values) {
  return [values](std::string_view name) -> std::optional<std::string> {
    const auto it = values.find(std::string(name));
    return it == values.end() ? std::nullopt : std::optional<std::string>(it->second);
  };
}

Values with(Values values, const Values& more) {
  for (const auto& [name, value] : more) values[name] = value;
  return values;
}

SchedulerSettings found_in(const Values& environment, std::vector<std::string> args = {}, const std::string& name = "host") {
  args.push_back("train.py");
  const Environment answers = environment_of(environment);
  return scheduler_settings(parse_arguments(args, answers).settings, answers, [&] { return name; });
}

Values values_in(const Values& environment, std::vector<std::string> args = {}, const std::string& name = "host") {
  Values values;
  for (const auto& [option, setting] : found_in(environment, std::move(args), name).values) values[option] = setting.value;
  return values;
}

std::string refused_variables(const Values& environment, std::vector<std::string> args = {}, const std::string& name = "host") {
  try {
    found_in(environment, std::move(args), name);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing is refused";
}

TEST(Scheduler, ASlurmStepProvidesAllNodeSettings) {
  EXPECT_EQ(
      values_in(kStep),
      (Values{
          {"nnodes", "2"}, {"node-rank", "1"}, {"master-addr", "n08"}, {"master-port", "13017"}, {"rdzv-id", "slurm-17.0"}}));
}

TEST(Scheduler, EachValueHasItsSource) {
  for (const auto& [option, setting] : found_in(kStep).values)
    EXPECT_TRUE(setting.source.starts_with("Slurm's SLURM_")) << option;
}

TEST(Scheduler, GivenValuesAreNotReplaced) {
  EXPECT_EQ(values_in(kStep, {"--nnodes", "1:2", "--rdzv-id", "exp7"}),
            (Values{{"node-rank", "1"}, {"master-addr", "n08"}, {"master-port", "13017"}}));
  EXPECT_EQ(values_in(with(kStep, {{"PET_NNODES", "2"}, {"DDPRUN_RDZV_ID", "exp7"}, {"PET_NODE_RANK", "0"}})),
            (Values{{"master-addr", "n08"}, {"master-port", "13017"}}));
}

TEST(Scheduler, RankAndAddressAreSetTogether) {
  EXPECT_EQ(values_in(kStep, {"--master-addr", "10.0.0.9"}), (Values{{"nnodes", "2"}, {"rdzv-id", "slurm-17.0"}}));
  EXPECT_EQ(values_in(kStep, {"--master-addr", "n08"}),
            (Values{{"nnodes", "2"}, {"rdzv-id", "slurm-17.0"}, {"node-rank", "1"}, {"master-port", "13017"}}));
  EXPECT_EQ(values_in(kStep, {"--rdzv-endpoint", "n09:7000"}), (Values{{"nnodes", "2"}, {"rdzv-id", "slurm-17.0"}}));
}

TEST(Scheduler, C10dUsesTheFirstHostAsEndpoint) {
  EXPECT_EQ(values_in(kStep, {"--rdzv-backend", "c10d"}),
            (Values{{"nnodes", "2"}, {"rdzv-endpoint", "n08:13017"}, {"rdzv-id", "slurm-17.0"}}));
}

// The user's options, including --port-range, take priority.
TEST(Scheduler, ThePortDependsOnTheJobAndTheStep) {
  const auto port_of = [](const Values& step, std::vector<std::string> args = {}) {
    return values_in(step, std::move(args))["master-port"];
  };
  EXPECT_EQ(port_of(with(kStep, {{"SLURM_JOB_ID", "18"}})), "13018");
  EXPECT_EQ(port_of(with(kStep, {{"SLURM_JOB_ID", "16017"}})), "13017");
  EXPECT_EQ(port_of(with(kStep, {{"SLURM_STEP_ID", "1"}})), "19118");
  EXPECT_EQ(port_of(kStep, {"--port-range", "31400-31409"}), "31407");
  EXPECT_EQ(port_of(kStep, {"--port-range", "nonsense"}), "13017");
  EXPECT_EQ(port_of(kStep, {"--master-port", "29500"}), "");
  EXPECT_EQ(port_of(kStep, {"--master-addr", "10.0.0.9"}), "");
  EXPECT_EQ(port_of(kStep, {"--rdzv-endpoint", "n08"}), "");
}

TEST(Scheduler, StepsOfNearJobsHaveDifferentPorts) {
  std::map<int, std::string> used;
  for (int job = 1000; job < 1400; ++job) {
    for (int step = 0; step < 4; ++step) {
      const std::string name = std::to_string(job) + "." + std::to_string(step);
      const auto [other, is_new] = used.emplace(port_of_slurm_step(job, step, 13000, 28999), name);
      EXPECT_TRUE(is_new) << name << " and " << other->second;
    }
  }
}

// All components of a heterogeneous job have the same SLURM_JOB_ID, and the steps of each component are numbered separately.
// The variables are the same as in Slurm 22.05.
TEST(Scheduler, AStepOfOneComponentHasTheIdOfTheComponent) {
  const Values components = with(kStep, {{"SLURM_HET_SIZE", "2"},
                                         {"SLURM_JOB_ID_HET_GROUP_0", "17"},
                                         {"SLURM_JOB_ID_HET_GROUP_1", "18"},
                                         {"SLURM_JOB_NODELIST_HET_GROUP_0", "n[01-02]"},
                                         {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[08-09]"}});
  EXPECT_EQ(values_in(components)["rdzv-id"], "slurm-18.0");
  EXPECT_EQ(values_in(components)["master-port"], "13018");
  EXPECT_EQ(values_in(with(components, {{"SLURM_STEP_NODELIST", "n[01-02,08-09]"}, {"SLURM_STEP_NUM_NODES", "4"}}))["rdzv-id"],
            "slurm-17.0");
}

// A node beyond the user's --nnodes is a spare: it has no rank until another node is lost.
TEST(Scheduler, ASpareNodeHasNoRank) {
  const Values third =
      with(kStep, {{"SLURM_NODEID", "2"}, {"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}});
  EXPECT_FALSE(values_in(third, {"--nnodes", "2"}).contains("node-rank"));
  EXPECT_FALSE(values_in(third, {"--nnodes", "1:2"}).contains("node-rank"));
  EXPECT_EQ(values_in(third, {"--nnodes", "1:3"})["node-rank"], "2");
}

TEST(Scheduler, ASingleNodeStepSetsNothing) {
  EXPECT_EQ(values_in(kStep, {"--standalone"}), Values());
  EXPECT_EQ(values_in(kStep, {"--nnodes", "1"}), Values());
  EXPECT_EQ(values_in(kStep, {"--nnodes", "1:1"}), Values());
  EXPECT_EQ(values_in(with(kStep, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "1"}})), Values());
}

TEST(Scheduler, GpusOfTheStepSetTheWorkers) {
  EXPECT_EQ(values_in(with(kStep, {{"SLURM_GPUS_ON_NODE", "3"}}), {"--standalone"}), (Values{{"nproc-per-node", "3"}}));
  EXPECT_EQ(values_in(with(kStep, {{"SLURM_GPUS_ON_NODE", "3"}}), {"--standalone", "--nproc-per-node", "1"}), Values());
  const Values per_task = with(kStep, {{"SLURM_GPUS_ON_NODE", "8"}, {"SLURM_GPUS_PER_TASK", "h100:2"}});
  EXPECT_EQ(values_in(per_task, {"--standalone"}), (Values{{"nproc-per-node", "2"}}));
}

const Values kSky{{"SKYPILOT_NODE_RANK", "1"},
                  {"SKYPILOT_NUM_NODES", "2"},
                  {"SKYPILOT_NODE_IPS", "10.0.0.4\n10.0.0.5"},
                  {"SKYPILOT_NUM_GPUS_PER_NODE", "8"},
                  {"SKYPILOT_TASK_ID", "sky-2026-11-30_c_3"}};
const Values kDstack{{"DSTACK_NODE_RANK", "1"},
                     {"DSTACK_NODES_NUM", "2"},
                     {"DSTACK_MASTER_NODE_IP", "10.0.0.4"},
                     {"DSTACK_GPUS_PER_NODE", "8"},
                     {"DSTACK_RUN_NAME", "gpt"}};
const Values kMpi{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};

TEST(Scheduler, SkyPilotAndDstackProvideAllNodeSettings) {
  EXPECT_EQ(values_in(kSky), (Values{{"nnodes", "2"},
                                     {"node-rank", "1"},
                                     {"master-addr", "10.0.0.4"},
                                     {"nproc-per-node", "8"},
                                     {"rdzv-id", "sky-2026-11-30_c_3"}}));
  EXPECT_EQ(
      values_in(kDstack),
      (Values{{"nnodes", "2"}, {"node-rank", "1"}, {"master-addr", "10.0.0.4"}, {"nproc-per-node", "8"}, {"rdzv-id", "gpt"}}));
  for (const auto& [option, setting] : found_in(kSky).values) EXPECT_TRUE(setting.source.starts_with("SkyPilot's SKYPILOT_"));
  for (const auto& [option, setting] : found_in(kDstack).values) EXPECT_TRUE(setting.source.starts_with("dstack's DSTACK_"));
}

TEST(Scheduler, OptionsTakePrecedenceOverSkyPilot) {
  EXPECT_EQ(values_in(kSky, {"--nnodes", "1:2", "--nproc-per-node", "4", "--rdzv-backend", "c10d"}),
            (Values{{"rdzv-endpoint", "10.0.0.4"}, {"rdzv-id", "sky-2026-11-30_c_3"}}));
  EXPECT_EQ(values_in(kSky, {"--standalone"}), (Values{{"nproc-per-node", "8"}}));
}

TEST(Scheduler, ATaskOnOneNodeSetsTheWorkersOnly) {
  EXPECT_EQ(
      values_in(with(kSky, {{"SKYPILOT_NODE_RANK", "0"}, {"SKYPILOT_NUM_NODES", "1"}, {"SKYPILOT_NODE_IPS", "10.0.0.4"}})),
      (Values{{"nproc-per-node", "8"}}));
  EXPECT_EQ(values_in(with(kDstack, {{"DSTACK_NODE_RANK", "0"}, {"DSTACK_NODES_NUM", "1"}, {"DSTACK_GPUS_PER_NODE", "0"}})),
            Values());
}

TEST(Scheduler, VariablesThatContradictEachOtherAreRefused) {
  EXPECT_NE(refused_variables(with(kSky, {{"SKYPILOT_NODE_RANK", "2"}}))
                .find("SKYPILOT_NODE_RANK is '2', but SKYPILOT_NUM_NODES is 2"),
            std::string::npos);
  EXPECT_NE(refused_variables(with(kDstack, {{"DSTACK_MASTER_NODE_IP", ""}}))
                .find("DSTACK_MASTER_NODE_IP is not set; add --master-addr"),
            std::string::npos);
  EXPECT_EQ(values_in(with(kDstack, {{"DSTACK_MASTER_NODE_IP", ""}}), {"--master-addr", "h"})["node-rank"], "1");
}

TEST(Scheduler, MpirunProvidesNodesAndRank) {
  EXPECT_EQ(values_in(kMpi, {"--master-addr", "10.0.0.4"}), (Values{{"nnodes", "2"}, {"node-rank", "1"}}));
  EXPECT_EQ(values_in(kMpi, {"--rdzv-backend", "c10d", "--rdzv-endpoint", "h:1"}), (Values{{"nnodes", "2"}}));
  EXPECT_EQ(values_in(with(kMpi, {{"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_JOB_NODELIST", "n[08-09]"}})),
            (Values{{"nnodes", "2"}, {"node-rank", "1"}, {"master-addr", "n08"}}));
  EXPECT_NE(refused_variables(kMpi).find("no variable of mpirun contains it; add --master-addr"), std::string::npos);
  EXPECT_EQ(values_in(with(kMpi, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}})), Values());
}

TEST(Scheduler, MpirunWithSeveralAgentsPerNodeIsRefused) {
  const Values two = with(kMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_NE(refused_variables(two).find("Use mpirun -N 1 ddprun"), std::string::npos);
  EXPECT_EQ(values_in(two, {"--standalone"}), Values());
  EXPECT_EQ(values_in(two, {"--nnodes", "2", "--master-addr", "h"}), Values());
}

TEST(Scheduler, SeveralAgentsPerNodeAreRefused) {
  const Values twice = with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}});
  EXPECT_NE(refused_variables(twice).find("#SBATCH --ntasks-per-node=1"), std::string::npos) << refused_variables(twice);
  EXPECT_EQ(values_in(twice, {"--nnodes", "4", "--rdzv-endpoint", "n08"}), Values());
  EXPECT_EQ(values_in(twice, {"--standalone"}), Values());
}

// `srun -n2 ddprun` on one node would start two jobs, and both jobs would write the same checkpoint.
TEST(Scheduler, SeveralAgentsOnOneNodeAreRefused) {
  const Values twice = with(kStep, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2"}});
  EXPECT_NE(refused_variables(twice).find("--ntasks-per-node=1"), std::string::npos) << refused_variables(twice);
  EXPECT_NE(refused_variables(twice, {"--nnodes", "1"}).find("--standalone"), std::string::npos);
  EXPECT_NE(refused_variables(twice, {"--nproc-per-node", "2"}).find("--standalone"), std::string::npos);
  EXPECT_EQ(values_in(twice, {"--standalone"}), Values());
  // With these options two agents of one job are allowed.
  EXPECT_EQ(values_in(twice, {"--nnodes", "2", "--rdzv-endpoint", "n08"}), Values());
}

TEST(Scheduler, ABatchScriptIsNotAStep) {
  for (const char* step : {"", "4294967291", "4294967290", "x"}) {
    Values batch = with(kStep, {{"SLURM_STEP_ID", step}, {"SLURM_JOB_NUM_NODES", "2"}});
    EXPECT_EQ(values_in(batch), Values()) << step;
    ASSERT_EQ(found_in(batch).warnings.size(), 1u) << step;
    EXPECT_NE(found_in(batch).warnings[0].find("srun ddprun"), std::string::npos);
    EXPECT_TRUE(found_in(batch, {"--nnodes", "1"}).warnings.empty());
    EXPECT_TRUE(found_in(with(batch, {{"SLURM_JOB_NUM_NODES", "1"}})).warnings.empty());
  }
}

TEST(Scheduler, AnUnreadableNodeListIsRefused) {
  EXPECT_NE(refused_variables(with(kStep, {{"SLURM_STEP_NODELIST", "n["}})).find("list of nodes \"n[\""), std::string::npos);
}

TEST(Scheduler, APodHasItsIndexAsNodeRank) {
  EXPECT_EQ(values_in(kPod, {"--nnodes", "3"}, "train-2.workers.team.svc.cluster.local"),
            (Values{{"node-rank", "2"}, {"master-addr", "train-0.workers.team.svc.cluster.local"}}));
  EXPECT_EQ(values_in(kPod, {"--nnodes", "3", "--rdzv-backend", "c10d"}, "train-2.workers"),
            (Values{{"rdzv-endpoint", "train-0.workers"}}));
  EXPECT_EQ(values_in(kPod, {"--nnodes", "3", "--master-addr", "10.0.0.1"}, "x"), (Values{{"node-rank", "2"}}));
}

// Without --nnodes, each pod of an indexed Job runs a separate single-node job.
TEST(Scheduler, ASinglePodSetsNothing) {
  EXPECT_EQ(values_in(kPod), Values());
  EXPECT_EQ(values_in(kPod, {"--nnodes", "1"}), Values());
  EXPECT_EQ(values_in(kPod, {"--nnodes", "2", "--rdzv-endpoint", "a:1"}), Values());
}

TEST(Scheduler, APodWithoutAHostNameIsRefused) {
  for (const char* name : {"train-2", "train-3.workers", "other.workers"}) {
    EXPECT_NE(refused_variables(kPod, {"--nnodes", "3"}, name).find("headless service"), std::string::npos) << name;
  }
}

TEST(Scheduler, AdoptedValuesCountAsGiven) {
  const std::vector<std::string> args{"train.py"};
  Arguments arguments = parse_arguments(args, environment_of({}));
  adopt_scheduler_settings(arguments, environment_of(kStep));
  EXPECT_TRUE(arguments.settings.given("nnodes"));
  EXPECT_EQ(arguments.settings.integer("nnodes", 1, 9), 2);
  EXPECT_EQ(arguments.settings.find("node-rank")->source, "Slurm's SLURM_NODEID");
}

}  // namespace
}  // namespace ddprun
