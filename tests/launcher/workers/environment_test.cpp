// Tests the environment of workers. It must contain the same variables as under torchrun, and the variables of ddprun.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>

#include "launcher/workers/worker_environment.hpp"

namespace ddprun {
namespace {

std::map<std::string, std::string> as_map(const std::vector<std::string>& variables) {
  std::map<std::string, std::string> result;
  for (const std::string& variable : variables) {
    const auto equals = variable.find('=');
    EXPECT_TRUE(result.emplace(variable.substr(0, equals), variable.substr(equals + 1)).second) << "twice: " << variable;
  }
  return result;
}

WorkerSettings settings_of_rank(int rank, int world_size) {
  const NodeShare node{.role = "trainer", .local_world_size = world_size};
  WorkerSettings settings;
  settings.ranks = assign_ranks(std::span(&node, 1))[static_cast<std::size_t>(rank)];
  settings.master_addr = "127.0.0.1";
  settings.master_port = 1234;
  settings.restart_count = 1;
  settings.max_restarts = 3;
  settings.agent_store = true;
  settings.run_id = "none";
  settings.error_file = "/logs/error.json";
  return settings;
}

TEST(WorkerEnvironment, MatchesTorchrun) {
  const auto environment = as_map(worker_environment({}, settings_of_rank(1, 2)));
  const std::map<std::string, std::string> expected{{"LOCAL_RANK", "1"},
                                                    {"RANK", "1"},
                                                    {"GROUP_RANK", "0"},
                                                    {"ROLE_RANK", "1"},
                                                    {"ROLE_NAME", "trainer"},
                                                    {"LOCAL_WORLD_SIZE", "2"},
                                                    {"WORLD_SIZE", "2"},
                                                    {"GROUP_WORLD_SIZE", "1"},
                                                    {"ROLE_WORLD_SIZE", "2"},
                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                    {"MASTER_PORT", "1234"},
                                                    {"TORCHELASTIC_RESTART_COUNT", "1"},
                                                    {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                                    {"TORCHELASTIC_RUN_ID", "none"},
                                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                    {"TORCHELASTIC_ERROR_FILE", "/logs/error.json"},
                                                    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                                    {"OMP_NUM_THREADS", "1"}};
  EXPECT_EQ(environment, expected);
}

TEST(WorkerEnvironment, AStandbyHasNoRankVariables) {
  WorkerSettings settings = settings_of_rank(0, 2);
  settings.standby = true;
  settings.channel = ChannelUse::kGiven;
  const std::vector<std::string> inherited{"RANK=9", "LOCAL_RANK=9", "HOME=/h", "TORCHELASTIC_ERROR_FILE=/another"};
  const auto environment = as_map(worker_environment(inherited, settings));
  for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE"})
    EXPECT_FALSE(environment.contains(name)) << name;
  EXPECT_EQ(environment.at("WORLD_SIZE"), "2");
  EXPECT_EQ(environment.at("LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(environment.at("DDPRUN_CHANNEL"), "fd:3");
  EXPECT_EQ(environment.at("HOME"), "/h");
}

TEST(WorkerEnvironment, OnlyScriptsGetSnapshotMemory) {
  WorkerSettings settings = settings_of_rank(0, 2);
  settings.snapshots = "/proc/7/fd/9";
  settings.channel = ChannelUse::kOffered;
  const std::vector<std::string> inherited{"DDPRUN_SNAPSHOTS=/proc/1/fd/1"};
  EXPECT_EQ(as_map(worker_environment(inherited, settings)).at("DDPRUN_SNAPSHOTS"), "/proc/7/fd/9:0");
  settings.channel = ChannelUse::kGiven;
  EXPECT_FALSE(as_map(worker_environment(inherited, settings)).contains("DDPRUN_SNAPSHOTS"));
  settings.channel = ChannelUse::kOffered;
  settings.snapshots.clear();
  EXPECT_FALSE(as_map(worker_environment(inherited, settings)).contains("DDPRUN_SNAPSHOTS"));
}

// With --virtual-local-rank all workers have local rank 0. Each worker still needs a different slot of the snapshot memory.
// With the same slot, two workers would write to the same memory.
TEST(WorkerEnvironment, EachWorkerHasItsOwnSnapshotSlot) {
  for (const int rank : {0, 1}) {
    WorkerSettings settings = settings_of_rank(rank, 2);
    settings.snapshots = "/proc/7/fd/9";
    settings.channel = ChannelUse::kOffered;
    settings.only_device = {{"CUDA_VISIBLE_DEVICES", "5"}};
    const auto environment = as_map(worker_environment({}, settings));
    EXPECT_EQ(environment.at("LOCAL_RANK"), "0");
    EXPECT_EQ(environment.at("DDPRUN_SNAPSHOTS"), "/proc/7/fd/9:" + std::to_string(rank));
  }
}

// Ranks of a script send their snapshots to other nodes. A rank without snapshot memory must answer queries with "no
// snapshot". So every rank needs DDPRUN_GENERATION, with or without snapshot memory.
TEST(WorkerEnvironment, AMultiNodeScriptGetsRoundAndAddress) {
  WorkerSettings settings = settings_of_rank(0, 2);
  settings.snapshots = "/proc/7/fd/9";
  settings.channel = ChannelUse::kOffered;
  settings.generation = 3;
  settings.node_address = "10.0.0.7";
  settings.port_range = "29400-29499";
  const std::vector<std::string> inherited{"DDPRUN_GENERATION=9", "DDPRUN_NODE_ADDRESS=10.0.0.9", "DDPRUN_PORT_RANGE=1-2"};
  const auto environment = as_map(worker_environment(inherited, settings));
  EXPECT_EQ(environment.at("DDPRUN_GENERATION"), "3");
  EXPECT_EQ(environment.at("DDPRUN_NODE_ADDRESS"), "10.0.0.7");
  EXPECT_EQ(environment.at("DDPRUN_PORT_RANGE"), "29400-29499");
  settings.snapshots.clear();
  EXPECT_EQ(as_map(worker_environment(inherited, settings)).at("DDPRUN_GENERATION"), "3");
  settings.channel = ChannelUse::kNone;
  for (const char* name : {"DDPRUN_GENERATION", "DDPRUN_NODE_ADDRESS", "DDPRUN_PORT_RANGE"})
    EXPECT_FALSE(as_map(worker_environment(inherited, settings)).contains(name)) << name;
}

TEST(WorkerEnvironment, StaleVariablesAreReplaced) {
  const std::vector<std::string> inherited{"RANK=9", "HOME=/h", "MASTER_ADDR=elsewhere", "EMPTY=", "PET_RANK=3"};
  const auto environment = as_map(worker_environment(inherited, settings_of_rank(0, 2)));
  EXPECT_EQ(environment.at("RANK"), "0");
  EXPECT_EQ(environment.at("MASTER_ADDR"), "127.0.0.1");
  EXPECT_EQ(environment.at("HOME"), "/h");
  EXPECT_EQ(environment.at("EMPTY"), "");
  EXPECT_EQ(environment.at("PET_RANK"), "3");
}

TEST(WorkerEnvironment, ThreadsAndNcclKeepGivenValues) {
  const std::vector<std::string> inherited{"OMP_NUM_THREADS=4", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3"};
  const auto environment = as_map(worker_environment(inherited, settings_of_rank(0, 2)));
  EXPECT_EQ(environment.at("OMP_NUM_THREADS"), "4");
  EXPECT_EQ(environment.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
  WorkerSettings settings = settings_of_rank(0, 1);
  settings.threads = 4;
  EXPECT_FALSE(as_map(worker_environment({}, settings)).contains("OMP_NUM_THREADS"));
  settings = settings_of_rank(0, 2);
  settings.threads = 4;
  EXPECT_EQ(as_map(worker_environment({}, settings)).at("OMP_NUM_THREADS"), "4");
}

// If a rank of a script waits for a lost rank, the agent does not end the waiting rank. So the timeouts of NCCL must end it.
// For ddptrain the agent itself handles lost ranks.
TEST(WorkerEnvironment, NcclWatchdogDoesNotEndWatchedWorkers) {
  WorkerSettings settings = settings_of_rank(0, 2);
  const std::vector<std::string> inherited{"TORCH_NCCL_ASYNC_ERROR_HANDLING=3", "TORCH_NCCL_ENABLE_MONITORING=1"};
  const auto script = as_map(worker_environment(inherited, settings));
  EXPECT_EQ(script.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
  EXPECT_EQ(script.at("TORCH_NCCL_ENABLE_MONITORING"), "1");
  settings.channel = ChannelUse::kGiven;
  const auto watched = as_map(worker_environment(inherited, settings));
  EXPECT_EQ(watched.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
  EXPECT_EQ(watched.at("TORCH_NCCL_ENABLE_MONITORING"), "0");
}

TEST(WorkerEnvironment, HandledSignalsAreListedLikeTorchrun) {
  WorkerSettings settings = settings_of_rank(0, 1);
  settings.signals_to_handle = {SIGTERM, SIGUSR1};
  const std::vector<std::string> inherited{"TORCHELASTIC_SIGNALS_TO_HANDLE=SIGHUP"};
  EXPECT_EQ(as_map(worker_environment(inherited, settings)).at("TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGTERM,SIGUSR1");
}

TEST(WorkerEnvironment, AVirtualLocalRankIsZeroAndSeesOneDevice) {
  WorkerSettings settings = settings_of_rank(1, 2);
  settings.only_device = {{"CUDA_VISIBLE_DEVICES", "5"}};
  const auto environment = as_map(worker_environment(std::vector<std::string>{"CUDA_VISIBLE_DEVICES=4,5"}, settings));
  EXPECT_EQ(environment.at("LOCAL_RANK"), "0");
  EXPECT_EQ(environment.at("RANK"), "1");
  EXPECT_EQ(environment.at("LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), "5");
}

TEST(WorkerEnvironment, TheTimerFileIsSetOrInherited) {
  const std::vector<std::string> inherited{"TORCHELASTIC_TIMER_FILE=/callers"};
  EXPECT_EQ(as_map(worker_environment(inherited, settings_of_rank(0, 1))).at("TORCHELASTIC_TIMER_FILE"), "/callers");
  WorkerSettings settings = settings_of_rank(0, 1);
  settings.timer_file = "/agents";
  EXPECT_EQ(as_map(worker_environment(inherited, settings)).at("TORCHELASTIC_TIMER_FILE"), "/agents");
}

TEST(WorkerEnvironment, SecretsAndStaleChannelsAreNotInherited) {
  const std::vector<std::string> inherited{"DDPRUN_TOKEN=secret", "DDPRUN_CHANNEL=fd:9", "DDPRUN_CHANNEL_INODE=4"};
  const auto script = as_map(worker_environment(inherited, settings_of_rank(0, 1)));
  EXPECT_FALSE(script.contains("DDPRUN_TOKEN"));
  EXPECT_FALSE(script.contains("DDPRUN_CHANNEL"));
  EXPECT_FALSE(script.contains("DDPRUN_CHANNEL_INODE"));
  WorkerSettings train = settings_of_rank(0, 1);
  train.channel = ChannelUse::kGiven;
  EXPECT_EQ(as_map(worker_environment(inherited, train)).at("DDPRUN_CHANNEL"), "fd:3");
}

// A script gets only the variables of the worker channel, DDPRUN_GENERATION and the node's address. It does not get the other
// variables of ddptrain, such as the variable for --chaos.
TEST(WorkerEnvironment, AScriptGetsAnOptionalChannel) {
  WorkerSettings settings = settings_of_rank(0, 1);
  settings.restart_count = 1;
  settings.facts = {.cause = "exit_code", .out_of_memory = 0};
  settings.generation = 4;
  settings.node_address = "10.0.0.1";
  settings.chaos = "kill";
  const std::vector<std::string> inherited{"LIBTORCH=/opt/torch", "DDPRUN_CHANNEL=fd:9"};
  auto without = as_map(worker_environment(inherited, settings));
  settings.channel = ChannelUse::kOffered;
  without.insert({{"DDPRUN_CHANNEL", "fd:3"}, {"DDPRUN_GENERATION", "4"}, {"DDPRUN_NODE_ADDRESS", "10.0.0.1"}});
  EXPECT_EQ(as_map(worker_environment(inherited, settings)), without);
  EXPECT_EQ(without.at("DDPRUN_RESTART_CAUSE"), "exit_code");
}

TEST(WorkerEnvironment, OnlyDdptrainGetsTheLibtorchPath) {
  const std::vector<std::string> inherited{"LIBTORCH=/opt/torch", "LD_LIBRARY_PATH=/a:/b"};
  EXPECT_EQ(as_map(worker_environment(inherited, settings_of_rank(0, 1))).at("LD_LIBRARY_PATH"), "/a:/b");
  WorkerSettings train = settings_of_rank(0, 1);
  train.channel = ChannelUse::kGiven;
  EXPECT_EQ(as_map(worker_environment(inherited, train)).at("LD_LIBRARY_PATH"), "/opt/torch/lib:/a:/b");
}

}  // namespace
}  // namespace ddprun
