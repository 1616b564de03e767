// The border between ddprun and its hwloc module (libddprun_topology.so, opened with dlopen): C functions and plain values
// only, since ddprun carries a C++ library of its own. topology.cpp calls, hwloc/topology_module.cpp answers.
#pragma once

namespace ddprun {

// Where the module puts what it finds; `receiver` is handed back unchanged.
struct TopologySink {
  void* receiver;
  void (*cpu)(void* receiver, int id, int core, int cache, int node, int socket, int allowed);
  void (*gpu)(void* receiver, int node);  // for each bus id, in order; -1: no such device or its node is not known
};

inline constexpr int kTopologyModuleVersion = 1;
inline constexpr char kTopologyModuleEntry[] = "ddprun_read_topology";

// Null when all went well, else what went wrong.
using TopologyModuleEntry = const char*(int version, const char* const* bus_ids, int bus_id_count, const TopologySink* sink);

}  // namespace ddprun
