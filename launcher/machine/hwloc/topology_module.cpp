// The module behind --numa-binding. It reads this machine's topology with hwloc, or the topology in the file HWLOC_XMLFILE, and
// returns it as plain numbers (launcher/machine/topology_module.hpp). It makes no decisions.
#include "launcher/machine/topology_module.hpp"

#include <hwloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

// Returns the last-level cache of this CPU. Only hwloc's data and unified caches count. Returns null if no cache is known.
hwloc_obj_t last_cache_of(hwloc_obj_t cpu) {
  hwloc_obj_t last = nullptr;
  for (hwloc_obj_t above = cpu->parent; above != nullptr; above = above->parent) {
    if (hwloc_obj_type_is_dcache(above->type)) last = above;
  }
  return last;
}

int first_cpu_of(hwloc_obj_t object, int otherwise) {
  return object != nullptr ? hwloc_bitmap_first(object->complete_cpuset) : otherwise;
}

int number_of(hwloc_obj_t object) {
  return object != nullptr && object->os_index != HWLOC_UNKNOWN_INDEX ? static_cast<int>(object->os_index) : 0;
}

hwloc_obj_t node_numbered(hwloc_topology_t topology, int number) {
  return number < 0 ? nullptr : hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(number));
}

// Reads the NUMA node of a PCI device from sysfs; -1 if unknown.
int node_by_sysfs(const char* bus_id) {
  char path[128];
  std::snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus_id);
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return -1;
  int node = -1;
  if (std::fscanf(file, "%d", &node) != 1) node = -1;
  std::fclose(file);
  return node;
}

// Returns the NUMA node under which hwloc places the device. If hwloc places it under several nodes (of a socket or the
// machine), the node in sysfs is returned. If sysfs has none, the first of these nodes is returned. A device that hwloc and
// sysfs do not list gets the machine's only node, or -1 if the machine has several.
int node_of_device(hwloc_topology_t topology, const char* bus_id) {
  hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, bus_id);
  hwloc_obj_t place = device != nullptr ? hwloc_get_non_io_ancestor_obj(topology, device) : nullptr;
  if (place != nullptr && hwloc_bitmap_weight(place->nodeset) == 1) return hwloc_bitmap_first(place->nodeset);
  if (hwloc_topology_is_thissystem(topology) != 0) {
    const int node = node_by_sysfs(bus_id);
    if (node_numbered(topology, node) != nullptr) return node;
    if (place == nullptr && node >= 0) return -1;
  }
  if (place != nullptr) return hwloc_bitmap_first(place->nodeset);
  const bool here = hwloc_topology_is_thissystem(topology) != 0;
  return here && hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) == 1
             ? hwloc_bitmap_first(hwloc_topology_get_topology_nodeset(topology))
             : -1;
}

void report_cpus(hwloc_topology_t topology, const ddprun::TopologySink& sink) {
  const bool here = hwloc_topology_is_thissystem(topology) != 0;
  hwloc_bitmap_t allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology));
  if (here) {
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(topology, mine, HWLOC_CPUBIND_THREAD) == 0) hwloc_bitmap_and(allowed, allowed, mine);
    hwloc_bitmap_free(mine);
  }
  for (hwloc_obj_t cpu = nullptr; (cpu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, cpu)) != nullptr;) {
    const int id = number_of(cpu);
    const int node = hwloc_bitmap_first(cpu->nodeset);
    hwloc_obj_t memory = node_numbered(topology, node);
    hwloc_obj_t cache = last_cache_of(cpu);
    const int whole_node = memory != nullptr ? hwloc_bitmap_first(memory->complete_cpuset) : id;
    sink.cpu(sink.receiver, id, first_cpu_of(hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, cpu), id),
             first_cpu_of(cache, whole_node), node < 0 ? 0 : node,
             number_of(hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, cpu)),
             hwloc_bitmap_isset(allowed, static_cast<unsigned>(id)));
  }
  hwloc_bitmap_free(allowed);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* ddprun_read_topology(int version, const char* const* bus_ids,
                                                                                   int bus_id_count,
                                                                                   const ddprun::TopologySink* sink) {
  if (version != ddprun::kTopologyModuleVersion) return "ddprun and its hwloc module have different versions";
  // The file is checked here, because hwloc would silently read this machine's topology if the file is missing.
  const char* file = std::getenv("HWLOC_XMLFILE");
  if (file != nullptr && ::access(file, R_OK) != 0) return "the file that HWLOC_XMLFILE names cannot be read";
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return "hwloc cannot be started";
  // This flag includes CPUs that this process may not use. A core has the number of its lowest CPU, and this number would
  // change if these CPUs were missing.
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(topology) != 0) {
    hwloc_topology_destroy(topology);
    return "hwloc could not read the topology from HWLOC_XMLFILE or /sys";
  }
  report_cpus(topology, *sink);
  for (int i = 0; i < bus_id_count; ++i) sink->gpu(sink->receiver, node_of_device(topology, bus_ids[i]));
  hwloc_topology_destroy(topology);
  return nullptr;
}
