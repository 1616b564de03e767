// The machine topology that NUMA binding needs, as values: each CPU with its core, cache, NUMA node and socket, and the NUMA
// nodes of the GPUs. read_topology() gets it from hwloc, through a module that is loaded only on demand (topology_module.hpp).
// numa_binding.cpp uses it; tests construct it by hand.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

struct Topology {
  // A core or cache has the number of its lowest CPU, whether this process may use that CPU or not. NUMA nodes and sockets
  // have the system's numbers.
  struct Cpu {
    int id = 0;
    int core = 0;
    int cache = 0;  // number of the CPU's last-level cache; if no cache is known, number of the NUMA node
    int node = 0;
    int socket = 0;
    bool allowed = true;  // this process may use the CPU, according to affinity and cgroup
  };
  std::vector<Cpu> cpus;       // sorted by id
  std::vector<int> gpu_nodes;  // NUMA node of each requested device, in the order of the request
};

// Throws UsageError if the module or hwloc is missing, or the topology can't be read.
Topology read_topology(const std::vector<std::string>& bus_ids);

}  // namespace ddprun
