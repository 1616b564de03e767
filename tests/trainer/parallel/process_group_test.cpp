// Tests process groups of real processes. The processes find each other through a store and make reductions over Gloo. If a
// process is killed, the survivors get an error.
#include "trainer/parallel/process_group.hpp"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "common/base/error.hpp"
#include "tests/trainer/parallel/ranks.hpp"
#include "trainer/parallel/device.hpp"

namespace ddprun::trainer {
namespace {

using Device = TrainConfig::Device;

// Computes the sum of rank + 1 over all ranks, for many elements, and checks the result.
void expect_sum_of_ranks(const Rank& rank) {
  const int size = rank.environment.world_size;
  std::vector<at::Tensor> tensors{at::full({1000}, rank.environment.rank + 1.0)};
  rank.group->allreduce(tensors)->wait();
  EXPECT_TRUE(tensors[0].equal(at::full({1000}, size * (size + 1) / 2.0)));
}

TEST(ProcessGroup, AWorldOfOneNeedsNoStore) {
  const WorkerEnvironment environment;
  const auto store = make_store(environment, nullptr, kTestTimeout);
  EXPECT_TRUE(dynamic_cast<c10d::HashStore*>(store.get()));
  Rank rank{
      environment, nullptr, store,
      make_process_group(environment, store, c10::kCPU, 0, {.timeout = kTestTimeout, .backend = DdpConfig::Backend::kGloo})};
  expect_sum_of_ranks(rank);
}

TEST(ProcessGroup, FormsOverTheWorkerChannel) {
  if (const auto rank = as_rank_of(3)) expect_sum_of_ranks(*rank);
}

TEST(ProcessGroup, FormsOverTorchrunsStore) {
  if (is_rank()) return expect_sum_of_ranks(*join_as_rank());
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore agent("127.0.0.1", options);
  start_ranks(2, {},
              {{"MASTER_ADDR", "127.0.0.1"},
               {"MASTER_PORT", std::to_string(agent.getPort())},
               {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
              false);
}

TEST(ProcessGroup, RegroupsOnTheSameStore) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  expect_sum_of_ranks(*rank);
  rank->group.reset();
  rank->group = make_process_group(rank->environment, rank->store, c10::kCPU, 1,
                                   {.timeout = kTestTimeout, .backend = DdpConfig::Backend::kGloo});
  expect_sum_of_ranks(*rank);
}

TEST(ProcessGroup, DistinguishesALostPeerFromOtherErrors) {
  const auto rank = as_rank_of(3, {{1, -SIGKILL}});
  if (!rank) return;
  expect_sum_of_ranks(*rank);
  if (rank->environment.rank == 1) ::raise(SIGKILL);
  // The all-reduce is repeated, because a survivor may detect the closed connection only after several calls.
  try {
    for (int i = 0; i < 1000; ++i) expect_sum_of_ranks(*rank);
    FAIL() << "the all-reduce without rank 1 went through";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_lost_peer(error)) << error.what();
  }
  EXPECT_FALSE(is_lost_peer(std::runtime_error("Timed out waiting 1000ms for recv operation to complete")));
  EXPECT_FALSE(is_lost_peer(std::runtime_error("DefaultCPUAllocator: can't allocate memory")));
}

TEST(ProcessGroup, NamesTheMissingVariable) {
  WorkerEnvironment environment;
  environment.world_size = 2;
  try {
    make_store(environment, nullptr, kTestTimeout);
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("MASTER_ADDR is not set, but rank 0 needs it to find 1 other workers"),
              std::string::npos)
        << error.what();
  }
}

TEST(ProcessGroup, ReportsATakenPort) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore other("127.0.0.1", options);
  WorkerEnvironment environment;
  environment.world_size = 2;
  environment.master_addr = "127.0.0.1";
  environment.master_port = other.getPort();
  EXPECT_THROW(make_store(environment, nullptr, kTestTimeout), UsageError);
}

TEST(Device, IsTheLocalRanksGpuOrTheCpu) {
  WorkerEnvironment environment;
  environment.local_world_size = 2;
  environment.local_rank = 1;
  EXPECT_EQ(choose_gpu(Device::kAuto, environment, 4, false), 1);
  EXPECT_EQ(choose_gpu(Device::kCuda, environment, 2, false), 1);
  EXPECT_EQ(choose_gpu(Device::kAuto, environment, 0, false), -1);
  EXPECT_EQ(choose_gpu(Device::kCpu, environment, 4, false), -1);
  EXPECT_EQ(choose_gpu(Device::kAuto, environment, 1, true), 0);
  EXPECT_THROW(choose_gpu(Device::kCuda, environment, 0, false), UsageError);
  EXPECT_EQ(choose_gpu(Device::kCuda, environment, 1, false), 0)
      << "each is shown one: its own, or refuse_shared_gpu finds out";
  environment.local_world_size = 3;
  for (const auto wanted : {Device::kCuda, Device::kAuto}) {
    try {
      choose_gpu(wanted, environment, 2, false);
      FAIL() << "expected an error";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("3 workers but only 2 GPUs"), std::string::npos) << error.what();
    }
  }
}

TEST(Device, IsRefusedToASecondRank) {
  c10d::HashStore store;
  EXPECT_NO_THROW(refuse_shared_gpu(store, 0, "GPU-a"));
  EXPECT_NO_THROW(refuse_shared_gpu(store, 1, "GPU-b"));
  try {
    refuse_shared_gpu(store, 2, "GPU-a");
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("ranks 0 and 2 compute on the same GPU, GPU-a"), std::string::npos)
        << error.what();
  }
}

// This test is only possible on a machine without an NVIDIA driver.
TEST(Device, AGpuWorkerNeverFallsBackToTheCpu) {
  const WorkerEnvironment environment;
  if (!is_certainly_cpu(Device::kAuto)) GTEST_SKIP() << "this machine has an NVIDIA driver";
  EXPECT_EQ(choose_device(Device::kAuto, environment, Fallback::kCpu), c10::kCPU);
  EXPECT_EQ(choose_device(Device::kCpu, environment, Fallback::kRefuse), c10::kCPU);
  try {
    choose_device(Device::kAuto, environment, Fallback::kRefuse);
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("was started for a GPU of this node but cannot use it"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace ddprun::trainer
