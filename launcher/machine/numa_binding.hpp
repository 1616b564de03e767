// Determines the CPUs on which each local rank may run (--numa-binding), by the rules that torchrun documents. The code is
// pure: the inputs are topology, GPUs and mode, the outputs are sets of CPUs. plan_placement.cpp calls it before anything is
// started; spawn.cpp applies the result.
#pragma once

#include <string>
#include <vector>

#include "launcher/machine/topology.hpp"

namespace ddprun {

enum class Numa { kNone, kNode, kSocket, kExclusive, kCoreComplex };

// Returns one ascending list of CPU numbers for each local rank. `topology.gpu_nodes` has the NUMA node of each visible GPU;
// local rank i belongs to GPU i. If there are no GPUs, the local ranks are distributed over the NUMA nodes that have CPUs,
// alternating between sockets. The modes are:
//   node          the CPUs of the GPU's node
//   socket        the CPUs of all nodes of that socket
//   exclusive     an equal number of the node's cores, in order; a remainder goes to the first GPUs of the node
//   core-complex  the CPUs that share one last-level cache, larger caches first; reused if there are more ranks than caches
// Only CPUs that this process may use are assigned. Throws UsageError if a rank would get none.
std::vector<std::vector<int>> bind_workers(const Topology& topology, Numa mode, int workers);

// Returns a text such as "0-3,8" for {0,1,2,3,8}.
std::string cpu_list(const std::vector<int>& cpus);

const char* name_of(Numa mode);

}  // namespace ddprun
