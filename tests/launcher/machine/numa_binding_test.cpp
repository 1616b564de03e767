// Tests which CPUs each local rank gets. Some machines are described in this file, and others in XML files that hwloc reads.
#include "launcher/machine/numa_binding.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/base/error.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/plan/plan_placement.hpp"
#include "tests/repository.hpp"

namespace ddprun {
namespace {

using Sets = std::vector<std::string>;

// Returns a machine with two sockets, two NUMA nodes per socket, four cores per node and two threads per core. CPUs c and c +
// 16 share core c. Two cores share a cache.
Topology big_machine() {
  Topology topology;
  for (int id = 0; id < 32; ++id) {
    const int core = id % 16;
    topology.cpus.push_back({.id = id, .core = core, .cache = core / 2 * 2, .node = core / 4, .socket = core / 8});
  }
  return topology;
}

Sets bound(const Topology& topology, Numa mode, int workers) {
  Sets texts;
  for (const auto& cpus : bind_workers(topology, mode, workers)) texts.push_back(cpu_list(cpus));
  return texts;
}

std::string refused_binding(const Topology& topology, Numa mode, int workers) {
  try {
    bind_workers(topology, mode, workers);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST(NumaBinding, NodeBindsToTheNodeOfTheGpu) {
  Topology topology = big_machine();
  topology.gpu_nodes = {3, 0, 0};
  EXPECT_EQ(bound(topology, Numa::kNode, 3), (Sets{"12-15,28-31", "0-3,16-19", "0-3,16-19"}));
}

TEST(NumaBinding, SocketBindsToTheSocketOfTheGpu) {
  Topology topology = big_machine();
  topology.gpu_nodes = {3, 0};
  EXPECT_EQ(bound(topology, Numa::kSocket, 2), (Sets{"8-15,24-31", "0-7,16-23"}));
}

TEST(NumaBinding, ExclusiveDividesNodeCoresAmongItsGpus) {
  Topology topology = big_machine();
  topology.gpu_nodes = {1, 1, 2, 2, 2};
  EXPECT_EQ(bound(topology, Numa::kExclusive, 5), (Sets{"4-5,20-21", "6-7,22-23", "8-9,24-25", "10,26", "11,27"}));
}

TEST(NumaBinding, ExclusiveCountsGpusWithoutAWorker) {
  Topology topology = big_machine();
  topology.gpu_nodes = {1, 1};
  EXPECT_EQ(bound(topology, Numa::kExclusive, 1), (Sets{"4-5,20-21"}));
}

TEST(NumaBinding, ExclusiveNeedsACorePerWorker) {
  Topology topology = big_machine();
  topology.gpu_nodes = {0, 0, 0, 0, 0};
  const std::string why = refused_binding(topology, Numa::kExclusive, 5);
  EXPECT_NE(why.find("NUMA node 0"), std::string::npos) << why;
  EXPECT_NE(why.find("4 cores"), std::string::npos) << why;
  EXPECT_NE(why.find("5 workers or GPUs"), std::string::npos) << why;
}

TEST(NumaBinding, CoreComplexBindsToOneCache) {
  Topology topology = big_machine();
  topology.gpu_nodes = {1, 1, 1};
  EXPECT_EQ(bound(topology, Numa::kCoreComplex, 3), (Sets{"4-5,20-21", "6-7,22-23", "4-5,20-21"}));
}

TEST(NumaBinding, CoreComplexTakesTheLargestFirst) {
  Topology topology = big_machine();
  topology.cpus[4].allowed = false;
  topology.gpu_nodes = {1, 1};
  EXPECT_EQ(bound(topology, Numa::kCoreComplex, 2), (Sets{"6-7,22-23", "5,20-21"}));
}

TEST(NumaBinding, OnlyAllowedCpusCount) {
  Topology topology = big_machine();
  for (auto& cpu : topology.cpus) cpu.allowed = cpu.id >= 1 && cpu.id <= 9;
  topology.gpu_nodes = {0, 2};
  EXPECT_EQ(bound(topology, Numa::kNode, 2), (Sets{"1-3", "8-9"}));
  EXPECT_EQ(bound(topology, Numa::kSocket, 1), (Sets{"1-7"}));
  topology.gpu_nodes = {3};
  EXPECT_NE(refused_binding(topology, Numa::kNode, 1).find("NUMA node 3"), std::string::npos);
}

TEST(NumaBinding, CoreOrderIgnoresForbiddenThreads) {
  Topology topology = big_machine();
  topology.cpus[0].allowed = false;
  topology.gpu_nodes = {0, 0};
  EXPECT_EQ(bound(topology, Numa::kExclusive, 2), (Sets{"1,16-17", "2-3,18-19"}));
}

TEST(NumaBinding, WithoutGpusNodesAlternateBetweenSockets) {
  const Topology topology = big_machine();
  EXPECT_EQ(bound(topology, Numa::kNode, 5), (Sets{"0-3,16-19", "8-11,24-27", "4-7,20-23", "12-15,28-31", "0-3,16-19"}));
  EXPECT_EQ(bound(topology, Numa::kSocket, 2), (Sets{"0-7,16-23", "8-15,24-31"}));
  EXPECT_EQ(bound(topology, Numa::kExclusive, 5), (Sets{"0-1,16-17", "8-11,24-27", "4-7,20-23", "12-15,28-31", "2-3,18-19"}));
  EXPECT_NE(refused_binding(topology, Numa::kExclusive, 17).find("4 cores"), std::string::npos);
}

TEST(NumaBinding, NodesWithoutAllowedCpusAreSkipped) {
  Topology topology = big_machine();
  for (auto& cpu : topology.cpus) cpu.allowed = cpu.node == 2;
  EXPECT_EQ(bound(topology, Numa::kNode, 2), (Sets{"8-11,24-27", "8-11,24-27"}));
  for (auto& cpu : topology.cpus) cpu.allowed = false;
  EXPECT_NE(refused_binding(topology, Numa::kNode, 1), "none");
}

TEST(NumaBinding, MoreWorkersThanGpusIsAnError) {
  Topology topology = big_machine();
  topology.gpu_nodes = {0};
  EXPECT_NE(refused_binding(topology, Numa::kNode, 2).find("there are 2 workers and 1 GPU"), std::string::npos);
  topology.gpu_nodes = {-1};
  EXPECT_NE(refused_binding(topology, Numa::kNode, 1).find("NUMA node of GPU 0"), std::string::npos);
}

TEST(CpuList, MergesConsecutiveCpus) {
  EXPECT_EQ(cpu_list({}), "");
  EXPECT_EQ(cpu_list({3}), "3");
  EXPECT_EQ(cpu_list({0, 1, 2, 4, 6, 7}), "0-2,4,6-7");
}

// ---- hwloc ----

class TopologyModule : public testing::Test {
 protected:
  void SetUp() override {
    const auto programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    if (!std::filesystem::exists(programs / "../lib/ddprun/libddprun_topology.so")) GTEST_SKIP() << "built without hwloc";
  }
  void TearDown() override { ::unsetenv("HWLOC_XMLFILE"); }
  static void machine(const std::string& name) {
    ::setenv("HWLOC_XMLFILE", (test::repository() / "tests/launcher/machine/topologies" / name).c_str(), 1);
  }
};

TEST_F(TopologyModule, ThisMachineMatchesTheAffinityMask) {
  const Topology topology = read_topology({});
  const auto allowed = std::count_if(topology.cpus.begin(), topology.cpus.end(), [](const auto& cpu) { return cpu.allowed; });
  EXPECT_EQ(allowed, count_cpus().affinity);
}

TEST_F(TopologyModule, TwoSocketsOfTwoNodesWithGpus) {
  machine("two-sockets-four-nodes.xml");
  const Topology topology = read_topology({"0000:c1:00.0", "0000:01:00.0", "0000:99:00.0"});
  ASSERT_EQ(topology.cpus.size(), 32u);
  EXPECT_EQ(topology.gpu_nodes, (std::vector<int>{3, 0, -1}));
  const Topology::Cpu last = topology.cpus.back();
  EXPECT_EQ(last.core, 15);
  EXPECT_EQ(last.node, 3);
  EXPECT_EQ(last.socket, 1);
  EXPECT_EQ(last.cache, 14);
  EXPECT_TRUE(last.allowed);
}

TEST_F(TopologyModule, AMachineWithoutCachesIsBoundByNode) {
  machine("one-node-no-caches.xml");
  const Topology topology = read_topology({});
  ASSERT_EQ(topology.cpus.size(), 4u);
  EXPECT_EQ(bound(topology, Numa::kCoreComplex, 2), (Sets{"0-3", "0-3"}));
}

TEST_F(TopologyModule, AMissingTopologyFileIsAnError) {
  machine("missing.xml");
  EXPECT_THROW(read_topology({}), UsageError);
}

// ---- placement in the plan ----

class Placement : public testing::Test {
 protected:
  Placement() {
    plan_.kind = Plan::Kind::kPython;
    plan_.nproc_per_node = 2;
    machine_.gpu_devices = [this] { return gpus_; };
    machine_.topology = [this](const std::vector<std::string>& ids) {
      Topology topology = big_machine();
      for (const std::string& id : ids) topology.gpu_nodes.push_back(id == "0000:01:00.0" ? 0 : 2);
      topology_was_read_ = true;
      return topology;
    };
  }
  void place() {
    place_workers(plan_, machine_, [this](std::string_view name) -> std::optional<std::string> {
      const auto found = environment_.find(std::string(name));
      return found == environment_.end() ? std::nullopt : std::optional(found->second);
    });
  }
  Plan plan_;
  Machine machine_;
  std::vector<GpuDevice> gpus_;
  std::map<std::string, std::string> environment_;
  bool topology_was_read_ = false;
};

TEST_F(Placement, TopologyIsReadOnDemand) {
  place();
  EXPECT_FALSE(topology_was_read_);
  ASSERT_EQ(plan_.places.size(), 2u);
  EXPECT_TRUE(plan_.places[1].cpus.empty());
  EXPECT_TRUE(plan_.places[1].only_device.empty());
}

TEST_F(Placement, BindsNearTheVisibleGpus) {
  plan_.numa = Numa::kNode;
  gpus_ = {{"GPU-b", "0000:81:00.0", {}}, {"GPU-a", "0000:01:00.0", {}}};
  place();
  EXPECT_EQ(cpu_list(plan_.places[0].cpus), "8-11,24-27");
  EXPECT_EQ(cpu_list(plan_.places[1].cpus), "0-3,16-19");
  EXPECT_EQ(plan_.sources.back().name, "cpus_of_local_rank_1");
  EXPECT_EQ(plan_.sources.back().value, "0-3,16-19");
}

TEST_F(Placement, ATrainJsonOnCpusNeedsNoGpu) {
  plan_.numa = Numa::kNode;
  plan_.kind = Plan::Kind::kTrain;
  plan_.device = "cpu";
  gpus_ = {{"GPU-a", "0000:01:00.0", {}}};
  place();
  EXPECT_EQ(cpu_list(plan_.places[1].cpus), "8-11,24-27");
}

TEST_F(Placement, GpusWithoutANodeAreAnError) {
  plan_.numa = Numa::kNode;
  gpus_ = {GpuDevice{}};
  EXPECT_THROW(place(), UsageError);
}

using Variables = std::vector<WorkerPlace::Variable>;

TEST_F(Placement, VirtualLocalRankGivesEachWorkerItsDevice) {
  plan_.virtual_local_rank = true;
  place();
  EXPECT_EQ(plan_.places[1].only_device, (Variables{{"CUDA_VISIBLE_DEVICES", "1"}}));
  environment_ = {{"CUDA_VISIBLE_DEVICES", " 5 , GPU-ab\t"}};
  place();
  EXPECT_EQ(plan_.places[0].only_device, (Variables{{"CUDA_VISIBLE_DEVICES", "5"}}));
  EXPECT_EQ(plan_.places[1].only_device, (Variables{{"CUDA_VISIBLE_DEVICES", "GPU-ab"}}));
  environment_ = {{"HIP_VISIBLE_DEVICES", "3,2"}, {"CUDA_VISIBLE_DEVICES", "7"}};
  place();
  EXPECT_EQ(plan_.places[1].only_device, (Variables{{"CUDA_VISIBLE_DEVICES", "2"}, {"HIP_VISIBLE_DEVICES", "2"}}));
  environment_ = {{"HIP_VISIBLE_DEVICES", ""}, {"CUDA_VISIBLE_DEVICES", "7,6"}};
  place();
  EXPECT_EQ(plan_.places[1].only_device, (Variables{{"CUDA_VISIBLE_DEVICES", "6"}}));
}

TEST_F(Placement, TooFewDevicesIsAnError) {
  plan_.virtual_local_rank = true;
  for (const char* visible : {"4", ""}) {
    environment_ = {{"CUDA_VISIBLE_DEVICES", visible}};
    EXPECT_THROW(place(), UsageError) << visible;
  }
}

}  // namespace
}  // namespace ddprun
