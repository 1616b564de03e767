// --numa-binding: the CPUs on which each local rank may run, by the rules that torchrun documents. Pure: topology, GPUs and
// mode go in, CPU sets come out. plan_placement.cpp calls it before anything is started; spawn.cpp applies the answer.
#pragma once

#include <string>
#include <vector>

#include "launcher/machine/topology.hpp"

namespace ddprun {

enum class Numa { kNone, kNode, kSocket, kExclusive, kCoreComplex };

// One ascending list of CPU numbers for each local rank. `topology.gpu_nodes` has the NUMA node of each visible GPU; local rank
// i belongs to GPU i. Without GPUs the local ranks take the NUMA nodes that have CPUs in turn, one of each socket before the
// second of any.
//   node          the CPUs of the GPU's node
//   socket        the CPUs of all nodes of that socket
//   exclusive     an even share of the node's cores, in order; the first GPUs of a node get one more where it does not divide
//   core-complex  the CPUs that share one last-level cache, the larger ones first; taken again from the first when all are
//   taken
// Only CPUs that this process may use count. Throws UsageError when a rank would be left without any.
std::vector<std::vector<int>> bind_workers(const Topology& topology, Numa mode, int workers);

// {0,1,2,3,8} -> "0-3,8"
std::string cpu_list(const std::vector<int>& cpus);

const char* name_of(Numa mode);

}  // namespace ddprun
