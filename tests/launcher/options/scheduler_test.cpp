// The settings that an agent takes from a Slurm step or a Kubernetes pod, and those that it leaves unchanged.
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

std::string refusal_of(const Values& environment, std::vector<std::string> args = {}, const std::string& name = "host") {
  try {
    found_in(environment, std::move(args), name);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing is refused";
}

TEST(Scheduler, AStepSaysEverythingAboutItsNodes) {
  EXPECT_EQ(values_in(kStep), (Values{{"nnodes", "2"}, {"node-rank", "1"}, {"master-addr", "n08"}, {"rdzv-id", "slurm-17.0"}}));
}

TEST(Scheduler, EachValueSaysWhereItIsFrom) {
  for (const auto& [option, setting] : found_in(kStep).values)
    EXPECT_TRUE(setting.source.starts_with("Slurm's SLURM_")) << option;
}

TEST(Scheduler, WhatSomebodyGaveIsNotReplaced) {
  EXPECT_EQ(values_in(kStep, {"--nnodes", "1:2", "--rdzv-id", "exp7"}), (Values{{"node-rank", "1"}, {"master-addr", "n08"}}));
  EXPECT_EQ(values_in(with(kStep, {{"PET_NNODES", "2"}, {"DDPRUN_RDZV_ID", "exp7"}, {"PET_NODE_RANK", "0"}})),
            (Values{{"master-addr", "n08"}}));
}

TEST(Scheduler, ARankGoesWithItsAddress) {
  EXPECT_EQ(values_in(kStep, {"--master-addr", "10.0.0.9"}), (Values{{"nnodes", "2"}, {"rdzv-id", "slurm-17.0"}}));
  EXPECT_EQ(values_in(kStep, {"--master-addr", "n08"}),
            (Values{{"nnodes", "2"}, {"rdzv-id", "slurm-17.0"}, {"node-rank", "1"}}));
  EXPECT_EQ(values_in(kStep, {"--rdzv-endpoint", "n09:7000"}), (Values{{"nnodes", "2"}, {"rdzv-id", "slurm-17.0"}}));
}

TEST(Scheduler, OfC10dTheFirstHostIsTheEndpoint) {
  EXPECT_EQ(values_in(kStep, {"--rdzv-backend", "c10d"}),
            (Values{{"nnodes", "2"}, {"rdzv-endpoint", "n08"}, {"rdzv-id", "slurm-17.0"}}));
}

TEST(Scheduler, OneMachineIsOneMachine) {
  EXPECT_EQ(values_in(kStep, {"--standalone"}), Values());
  EXPECT_EQ(values_in(kStep, {"--nnodes", "1"}), Values());
  EXPECT_EQ(values_in(kStep, {"--nnodes", "1:1"}), Values());
  EXPECT_EQ(values_in(with(kStep, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "1"}})), Values());
}

TEST(Scheduler, TheStepsGpusAreTheWorkers) {
  EXPECT_EQ(values_in(with(kStep, {{"SLURM_GPUS_ON_NODE", "3"}}), {"--standalone"}), (Values{{"nproc-per-node", "3"}}));
  EXPECT_EQ(values_in(with(kStep, {{"SLURM_GPUS_ON_NODE", "3"}}), {"--standalone", "--nproc-per-node", "1"}), Values());
}

TEST(Scheduler, SeveralAgentsOnANodeAreAMistake) {
  const Values twice = with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}});
  EXPECT_NE(refusal_of(twice).find("--ntasks-per-node=1"), std::string::npos) << refusal_of(twice);
  EXPECT_EQ(values_in(twice, {"--nnodes", "4", "--rdzv-endpoint", "n08"}), Values());
  EXPECT_EQ(values_in(twice, {"--standalone"}), Values());
}

// srun -n2 ddprun on one node would train twice, and both jobs would write the same checkpoint.
TEST(Scheduler, SeveralAgentsOnTheOnlyNodeAreAMistakeToo) {
  const Values twice = with(kStep, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2"}});
  EXPECT_NE(refusal_of(twice).find("--ntasks-per-node=1"), std::string::npos) << refusal_of(twice);
  EXPECT_NE(refusal_of(twice, {"--nnodes", "1"}).find("--standalone"), std::string::npos);
  EXPECT_NE(refusal_of(twice, {"--nproc-per-node", "2"}).find("--standalone"), std::string::npos);
  EXPECT_EQ(values_in(twice, {"--standalone"}), Values());
  EXPECT_EQ(values_in(twice, {"--nnodes", "2", "--rdzv-endpoint", "n08"}), Values());  // two agents of one job
}

TEST(Scheduler, ABatchScriptIsNoStep) {
  for (const char* step : {"", "4294967291", "4294967290", "x"}) {
    Values batch = with(kStep, {{"SLURM_STEP_ID", step}, {"SLURM_JOB_NUM_NODES", "2"}});
    EXPECT_EQ(values_in(batch), Values()) << step;
    ASSERT_EQ(found_in(batch).warnings.size(), 1u) << step;
    EXPECT_NE(found_in(batch).warnings[0].find("srun ddprun"), std::string::npos);
    EXPECT_TRUE(found_in(batch, {"--nnodes", "1"}).warnings.empty());
    EXPECT_TRUE(found_in(with(batch, {{"SLURM_JOB_NUM_NODES", "1"}})).warnings.empty());
  }
}

TEST(Scheduler, AListThatCannotBeReadIsRefused) {
  EXPECT_NE(refusal_of(with(kStep, {{"SLURM_STEP_NODELIST", "n["}})).find("list of nodes \"n[\""), std::string::npos);
}

TEST(Scheduler, APodIsTheNodeOfItsIndex) {
  EXPECT_EQ(values_in(kPod, {"--nnodes", "3"}, "train-2.workers.team.svc.cluster.local"),
            (Values{{"node-rank", "2"}, {"master-addr", "train-0.workers.team.svc.cluster.local"}}));
  EXPECT_EQ(values_in(kPod, {"--nnodes", "3", "--rdzv-backend", "c10d"}, "train-2.workers"),
            (Values{{"rdzv-endpoint", "train-0.workers"}}));
  EXPECT_EQ(values_in(kPod, {"--nnodes", "3", "--master-addr", "10.0.0.1"}, "x"), (Values{{"node-rank", "2"}}));
}

// Without --nnodes an indexed Job is many single-node jobs.
TEST(Scheduler, APodAloneIsAlone) {
  EXPECT_EQ(values_in(kPod), Values());
  EXPECT_EQ(values_in(kPod, {"--nnodes", "1"}), Values());
  EXPECT_EQ(values_in(kPod, {"--nnodes", "2", "--rdzv-endpoint", "a:1"}), Values());
}

TEST(Scheduler, APodThatNobodyFindsIsRefused) {
  for (const char* name : {"train-2", "train-3.workers", "other.workers"}) {
    EXPECT_NE(refusal_of(kPod, {"--nnodes", "3"}, name).find("headless service"), std::string::npos) << name;
  }
}

TEST(Scheduler, WhatWasAdoptedCountsAsGiven) {
  const std::vector<std::string> args{"train.py"};
  Arguments arguments = parse_arguments(args, environment_of({}));
  adopt_scheduler_settings(arguments, environment_of(kStep));
  EXPECT_TRUE(arguments.settings.given("nnodes"));
  EXPECT_EQ(arguments.settings.integer("nnodes", 1, 9), 2);
  EXPECT_EQ(arguments.settings.find("node-rank")->source, "Slurm's SLURM_NODEID");
}

}  // namespace
}  // namespace ddprun
