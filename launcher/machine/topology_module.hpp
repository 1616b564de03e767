// The interface between ddprun and its hwloc module (libddprun_topology.so, opened with dlopen). It uses C functions and plain
// values only, since ddprun has its own copy of the C++ library. topology.cpp calls it, hwloc/topology_module.cpp implements
// it.
#pragma once

namespace ddprun {

// The callbacks that receive the module's results. The module passes `receiver` to them unchanged.
struct TopologySink {
  void* receiver;
  void (*cpu)(void* receiver, int id, int core, int cache, int node, int socket, int allowed);
  void (*gpu)(void* receiver, int node);  // called for each bus id, in order; -1: the device or its node is unknown
};

inline constexpr int kTopologyModuleVersion = 1;
inline constexpr char kTopologyModuleEntry[] = "ddprun_read_topology";

// Returns null on success, else an error message.
using TopologyModuleEntry = const char*(int version, const char* const* bus_ids, int bus_id_count, const TopologySink* sink);

}  // namespace ddprun
