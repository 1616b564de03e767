// What NUMA binding must know of a machine, as values: each CPU with its core, cache, NUMA node and socket, and the NUMA nodes
// of the GPUs. read_topology() gets it from hwloc, in a module that is opened only on demand (topology_module.hpp).
// numa_binding.cpp decides with it, and tests write it by hand.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

struct Topology {
  // A core or cache has the lowest number of its CPUs, allowed or not; NUMA nodes and sockets have the system's numbers.
  struct Cpu {
    int id = 0;
    int core = 0;
    int cache = 0;  // the last level that is known; if none is: the NUMA node's
    int node = 0;
    int socket = 0;
    bool allowed = true;  // for this process, by affinity and cgroup
  };
  std::vector<Cpu> cpus;       // in ascending order
  std::vector<int> gpu_nodes;  // one for each device that was asked for, in that order
};

// Throws UsageError when the module or hwloc is missing, or the topology can't be read.
Topology read_topology(const std::vector<std::string>& bus_ids);

}  // namespace ddprun
