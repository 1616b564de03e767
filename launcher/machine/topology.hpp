// What NUMA binding needs to know of a machine, as values: every CPU with its core, cache, NUMA node and socket, and the nodes
// of the GPUs. read_topology() fills it from hwloc, in a module that is opened only when somebody asks (topology_module.hpp);
// numa_binding.cpp decides with it, and tests write it down by hand.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

struct Topology {
  // Groups are named by the lowest number of a CPU in them, whether allowed or not; nodes and sockets by the system's numbers.
  struct Cpu {
    int id = 0;
    int core = 0;
    int cache = 0;  // last level that is known; without any: the NUMA node's
    int node = 0;
    int socket = 0;
    bool allowed = true;  // for this process, by affinity and cgroup
  };
  std::vector<Cpu> cpus;       // ascending
  std::vector<int> gpu_nodes;  // of the devices that were asked for, in their order
};

// Throws UsageError when the module or hwloc is missing, or the topology can't be read.
Topology read_topology(const std::vector<std::string>& bus_ids);

}  // namespace ddprun
