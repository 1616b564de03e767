// Tests the rank and the group that a worker reads from the environment of each supported launcher.
#include "trainer/surroundings/environment.hpp"

#include <gtest/gtest.h>

#include <map>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

using Variables = std::map<std::string, std::string>;

WorkerEnvironment read(const Variables& variables) {
  return read_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string error_of(const Variables& variables) {
  try {
    read(variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

const Variables kTorchrun{{"RANK", "3"},
                          {"LOCAL_RANK", "1"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"GROUP_RANK", "1"},
                          {"GROUP_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.1"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                          {"TORCHELASTIC_RUN_ID", "job7"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(Environment, WithoutVariablesIsAJobOfOne) {
  const auto environment = read({});
  EXPECT_EQ(environment.rank, 0);
  EXPECT_EQ(environment.world_size, 1);
  EXPECT_EQ(environment.local_world_size, 1);
  EXPECT_EQ(environment.channel_fd, -1);
  EXPECT_EQ(environment.source, "single");
}

TEST(Environment, AStandbyHasAJobButNoRank) {
  const auto of = [](Variables variables) {
    return read_standby_environment([variables](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  const auto environment = of({{"WORLD_SIZE", "3"}, {"LOCAL_WORLD_SIZE", "3"}, {"DDPRUN_CHANNEL", "fd:3"}});
  EXPECT_EQ(environment.rank, -1);
  EXPECT_EQ(environment.local_rank, -1);
  EXPECT_EQ(environment.world_size, 3);
  EXPECT_EQ(environment.local_world_size, 3);
  EXPECT_EQ(environment.channel_fd, 3);
  EXPECT_EQ(environment.source, "ddprun");
  // If there is no channel, the agent cannot assign a rank.
  EXPECT_THROW(of({{"WORLD_SIZE", "3"}, {"LOCAL_WORLD_SIZE", "3"}}), UsageError);
  EXPECT_THROW(of({{"DDPRUN_CHANNEL", "fd:3"}}), UsageError);
}

TEST(Environment, ReadsTorchrunsVariables) {
  const auto environment = read(kTorchrun);
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.world_size, 4);
  EXPECT_EQ(environment.local_world_size, 2);
  EXPECT_EQ(environment.group_rank, 1);
  EXPECT_EQ(environment.group_world_size, 2);
  EXPECT_EQ(environment.restart_count, 2);
  EXPECT_EQ(environment.master_addr, "10.0.0.1");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_TRUE(environment.use_agent_store);
  EXPECT_EQ(environment.run_id, "job7");
  EXPECT_EQ(environment.source, "torchrun");
}

TEST(Environment, RecognizesDdprunByItsChannel) {
  const auto environment = read(with(with(kTorchrun, "DDPRUN_CHANNEL", "fd:7"), "TORCHELASTIC_USE_AGENT_STORE", "False"));
  EXPECT_EQ(environment.channel_fd, 7);
  EXPECT_EQ(environment.source, "ddprun");
  EXPECT_FALSE(environment.use_agent_store);
}

TEST(Environment, NamesVariableValueAndRange) {
  EXPECT_EQ(error_of(with(kTorchrun, "WORLD_SIZE", "four")).substr(0, 93),
            "the environment variable WORLD_SIZE is \"four\"; expected a whole number from 1 to 16777216. Un");
  EXPECT_NE(error_of(with(kTorchrun, "RANK", "4")).find("RANK is \"4\"; expected a whole number from 0 to 3"),
            std::string::npos);
  EXPECT_NE(error_of(with(kTorchrun, "MASTER_PORT", "0")).find("MASTER_PORT is \"0\""), std::string::npos);
  EXPECT_NE(error_of(with(kTorchrun, "LOCAL_RANK", "2")).find("from 0 to 1"), std::string::npos);
  EXPECT_NE(error_of({{"RANK", "0"}}).find("WORLD_SIZE is not set, but RANK is set"), std::string::npos);
  EXPECT_NE(error_of({{"DDPRUN_CHANNEL", "7"}}).find("expected \"fd:N\""), std::string::npos);
}

TEST(Environment, RankAndWorldSizeAreSufficient) {
  const auto environment = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1234"}});
  EXPECT_EQ(environment.local_rank, 0);
  EXPECT_EQ(environment.local_world_size, 1);
}

const Variables kSlurm{{"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "3"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_STEP_NUM_TASKS", "4"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_STEP_NUM_NODES", "2"},
                       {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
                       {"SLURM_STEP_NODELIST", "n[08-09]"}};

TEST(Environment, ReadsASlurmStep) {
  const auto environment = read(kSlurm);
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.local_rank, 0);
  EXPECT_EQ(environment.world_size, 4);
  EXPECT_EQ(environment.local_world_size, 1);
  EXPECT_EQ(environment.group_rank, 1);
  EXPECT_EQ(environment.group_world_size, 2);
  EXPECT_EQ(environment.master_addr, "n08");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_EQ(environment.source, "slurm");
}

TEST(Environment, UsesLoopbackWhenASlurmStepIsOnOneNode) {
  auto variables = kSlurm;
  variables["SLURM_STEP_NUM_NODES"] = "1";
  variables["SLURM_NODEID"] = "0";
  variables["SLURM_STEP_TASKS_PER_NODE"] = "4";
  EXPECT_EQ(read(variables).master_addr, "127.0.0.1");
  EXPECT_EQ(read(variables).local_world_size, 4);
}

TEST(Environment, IsNotASlurmTaskInABatchScript) {
  auto variables = kSlurm;
  variables.erase("SLURM_STEP_ID");
  EXPECT_EQ(read(variables).source, "single");
  variables["SLURM_STEP_ID"] = "4294967291";  // Slurm's step id of a batch script
  EXPECT_EQ(read(variables).source, "single");
}

TEST(Environment, PrefersRankToSlurmAndMpirunToItsDaemonsSlurmStep) {
  auto variables = kSlurm;
  variables.insert({{"OMPI_COMM_WORLD_RANK", "1"},
                    {"OMPI_COMM_WORLD_SIZE", "2"},
                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  const auto openmpi = read(variables);
  EXPECT_EQ(openmpi.source, "openmpi");
  EXPECT_EQ(openmpi.rank, 1);
  EXPECT_EQ(openmpi.local_world_size, 2);
  EXPECT_EQ(openmpi.master_addr, "127.0.0.1");
  variables.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(read(variables).source, "torchrun");
}

TEST(Environment, ReadsPmix) {
  const auto environment = read({{"PMIX_RANK", "1"}, {"PMIX_SIZE", "2"}, {"MASTER_ADDR", "h"}});
  EXPECT_EQ(environment.source, "pmix");
  EXPECT_EQ(environment.rank, 1);
  EXPECT_EQ(environment.world_size, 2);
  EXPECT_NE(error_of({{"PMIX_RANK", "1"}}).find("WORLD_SIZE is not set, but PMIX_RANK is set"), std::string::npos);
}

}  // namespace
}  // namespace ddprun::trainer
