// Implementation of topology.hpp: finds and opens the module, and collects its results.
#include "launcher/machine/topology.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "common/base/error.hpp"
#include "launcher/machine/topology_module.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr char kModule[] = "libddprun_topology.so";

// The module is never closed: it is used only once, and unloading a library that has state is risky.
TopologyModuleEntry* open_module() {
  std::error_code error;
  const fs::path programs = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path file = (programs / ".." / "lib" / "ddprun" / kModule).lexically_normal();
  if (!fs::exists(file, error)) {
    throw UsageError("--numa-binding needs " + file.string() +
                     ", which does not exist: install hwloc's headers (Debian: libhwloc-dev) and build ddprun again");
  }
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw UsageError("--numa-binding needs hwloc, which cannot be loaded: " + std::string(::dlerror()) +
                     "; install it (Debian: libhwloc15)");
  }
  auto* const entry = reinterpret_cast<TopologyModuleEntry*>(::dlsym(library, kTopologyModuleEntry));
  if (entry == nullptr)
    throw UsageError(file.string() + " belongs to another version of ddprun: install ddprun and this file together");
  return entry;
}

}  // namespace

Topology read_topology(const std::vector<std::string>& bus_ids) {
  std::vector<const char*> ids;
  ids.reserve(bus_ids.size());
  for (const std::string& id : bus_ids) ids.push_back(id.c_str());
  Topology topology;
  const TopologySink sink{&topology,
                          [](void* receiver, int id, int core, int cache, int node, int socket, int allowed) {
                            static_cast<Topology*>(receiver)->cpus.push_back({id, core, cache, node, socket, allowed != 0});
                          },
                          [](void* receiver, int node) { static_cast<Topology*>(receiver)->gpu_nodes.push_back(node); }};
  if (const char* why = open_module()(kTopologyModuleVersion, ids.data(), static_cast<int>(ids.size()), &sink)) {
    throw UsageError("--numa-binding: this machine's topology cannot be read: " + std::string(why));
  }
  std::sort(topology.cpus.begin(), topology.cpus.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return topology;
}

}  // namespace ddprun
