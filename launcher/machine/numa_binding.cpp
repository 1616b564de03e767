#include "launcher/machine/numa_binding.hpp"

#include <algorithm>
#include <map>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

using Cpus = std::vector<int>;
using Member = int Topology::Cpu::*;

// The part of a NUMA node that a worker gets. If the node is divided into `of` equal parts, it is part `index`, counted from 0.
struct NumaShare {
  int node = 0;
  int index = 0;
  int of = 1;
};

std::vector<Topology::Cpu> allowed_on(const Topology& topology, int node) {
  std::vector<Topology::Cpu> found;
  std::copy_if(topology.cpus.begin(), topology.cpus.end(), std::back_inserter(found),
               [node](const Topology::Cpu& cpu) { return cpu.allowed && cpu.node == node; });
  return found;
}

Cpus ids_of(const std::vector<Topology::Cpu>& cpus) {
  Cpus ids;
  ids.reserve(cpus.size());
  for (const Topology::Cpu& cpu : cpus) ids.push_back(cpu.id);
  return ids;
}

// Groups CPUs by the value of one member, such as their core. The groups are sorted by that value.
std::vector<Cpus> grouped(const std::vector<Topology::Cpu>& cpus, Member name) {
  std::map<int, Cpus> groups;
  for (const Topology::Cpu& cpu : cpus) groups[cpu.*name].push_back(cpu.id);
  std::vector<Cpus> lists;
  lists.reserve(groups.size());
  for (auto& [key, list] : groups) lists.push_back(std::move(list));
  return lists;
}

// Returns the NUMA nodes with CPUs that this process may use, alternating between sockets: the first node of each socket, then
// the second of each, and so on.
std::vector<int> nodes_in_turn(const Topology& topology) {
  std::map<int, std::vector<int>> nodes_of_socket;
  for (const Topology::Cpu& cpu : topology.cpus) {
    auto& nodes = nodes_of_socket[cpu.socket];
    if (cpu.allowed && std::find(nodes.begin(), nodes.end(), cpu.node) == nodes.end()) nodes.push_back(cpu.node);
  }
  std::vector<int> order;
  for (std::size_t turn = 0; turn < topology.cpus.size(); ++turn) {
    for (auto& [socket, nodes] : nodes_of_socket) {
      std::sort(nodes.begin(), nodes.end());
      const bool new_one = turn < nodes.size() && std::find(order.begin(), order.end(), nodes[turn]) == order.end();
      if (new_one) order.push_back(nodes[turn]);
    }
  }
  return order;
}

// Returns the part of a NUMA node that each worker gets. `nodes` has the node of each GPU. Each GPU gets an equal part of its
// node's CPUs, even if no worker uses the GPU. torchrun does the same.
std::vector<NumaShare> shares_at(const std::vector<int>& nodes, int workers) {
  std::vector<NumaShare> shares;
  for (int rank = 0; rank < workers; ++rank) {
    const auto position = nodes.begin() + rank;
    shares.push_back({*position, static_cast<int>(std::count(nodes.begin(), position, *position)),
                      static_cast<int>(std::count(nodes.begin(), nodes.end(), *position))});
  }
  return shares;
}

std::vector<NumaShare> shares_of(const Topology& topology, int workers) {
  if (topology.gpu_nodes.empty()) {
    const std::vector<int> order = nodes_in_turn(topology);
    if (order.empty())
      throw UsageError(
          "--numa-binding: this process may not use any CPU of this machine; check its affinity (taskset) and cgroup");
    std::vector<int> nodes;
    nodes.reserve(static_cast<std::size_t>(workers));
    for (int rank = 0; rank < workers; ++rank) nodes.push_back(order[static_cast<std::size_t>(rank) % order.size()]);
    return shares_at(nodes, workers);
  }
  const int gpus = static_cast<int>(topology.gpu_nodes.size());
  if (workers > gpus) {
    throw UsageError("--numa-binding needs one GPU for each worker, but there are " + std::to_string(workers) +
                     " workers and " + std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs") +
                     ": start fewer workers, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to bind without them");
  }
  for (int gpu = 0; gpu < workers; ++gpu) {
    if (topology.gpu_nodes[static_cast<std::size_t>(gpu)] >= 0) continue;
    throw UsageError("--numa-binding: the NUMA node of GPU " + std::to_string(gpu) +
                     " is unknown, since hwloc does not list its PCI device; start without --numa-binding");
  }
  return shares_at(topology.gpu_nodes, workers);
}

Cpus of_socket(const Topology& topology, int node, const std::vector<Topology::Cpu>& on_node) {
  // The socket of a node is the socket of the node's first CPU. So the first CPU of each node is enough to find the nodes of a
  // socket.
  const int socket = on_node.front().socket;
  std::map<int, int> socket_of_node;
  for (const Topology::Cpu& cpu : topology.cpus) {
    if (cpu.allowed) socket_of_node.emplace(cpu.node, cpu.socket);
  }
  socket_of_node[node] = socket;
  Cpus cpus;
  for (const Topology::Cpu& cpu : topology.cpus) {
    const auto found = socket_of_node.find(cpu.node);
    if (cpu.allowed && found != socket_of_node.end() && found->second == socket) cpus.push_back(cpu.id);
  }
  return cpus;
}

Cpus exclusive_share(const std::vector<Topology::Cpu>& on_node, const NumaShare& share, int rank) {
  const std::vector<Cpus> cores = grouped(on_node, &Topology::Cpu::core);
  const int count = static_cast<int>(cores.size());
  if (count < share.of) {
    throw UsageError("--numa-binding exclusive: NUMA node " + std::to_string(share.node) + " of local rank " +
                     std::to_string(rank) + " has " + std::to_string(count) + (count == 1 ? " core" : " cores") +
                     " that this process may use, but " + std::to_string(share.of) +
                     " workers or GPUs share the NUMA node and each needs a separate core: start fewer workers, or use "
                     "--numa-binding node");
  }
  const int least = count / share.of, rest = count % share.of;
  const int begin = share.index * least + std::min(share.index, rest);
  const int end = begin + least + (share.index < rest ? 1 : 0);
  Cpus cpus;
  for (int core = begin; core < end; ++core) {
    const Cpus& of_core = cores[static_cast<std::size_t>(core)];
    cpus.insert(cpus.end(), of_core.begin(), of_core.end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

Cpus core_complex(const std::vector<Topology::Cpu>& on_node, const NumaShare& share) {
  std::vector<Cpus> complexes = grouped(on_node, &Topology::Cpu::cache);
  std::stable_sort(complexes.begin(), complexes.end(), [](const Cpus& a, const Cpus& b) { return a.size() > b.size(); });
  return complexes[static_cast<std::size_t>(share.index) % complexes.size()];
}

Cpus cpus_for(const Topology& topology, Numa mode, const NumaShare& share, int rank) {
  const std::vector<Topology::Cpu> on_node = allowed_on(topology, share.node);
  if (on_node.empty()) {
    throw UsageError("--numa-binding " + std::string(name_of(mode)) + ": NUMA node " + std::to_string(share.node) +
                     " of local rank " + std::to_string(rank) +
                     " has no CPU that this process may use (excluded by its affinity or cgroup)");
  }
  switch (mode) {
    case Numa::kNone:
      return {};
    case Numa::kNode:
      return ids_of(on_node);
    case Numa::kSocket:
      return of_socket(topology, share.node, on_node);
    case Numa::kExclusive:
      return exclusive_share(on_node, share, rank);
    case Numa::kCoreComplex:
      return core_complex(on_node, share);
  }
  return {};
}

}  // namespace

std::vector<std::vector<int>> bind_workers(const Topology& topology, Numa mode, int workers) {
  const std::vector<NumaShare> shares = shares_of(topology, workers);
  std::vector<Cpus> sets;
  sets.reserve(shares.size());
  for (int rank = 0; rank < workers; ++rank)
    sets.push_back(cpus_for(topology, mode, shares[static_cast<std::size_t>(rank)], rank));
  return sets;
}

std::string cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[first]);
    if (last > first) text += "-" + std::to_string(cpus[last]);
    first = last + 1;
  }
  return text;
}

const char* name_of(Numa mode) {
  switch (mode) {
    case Numa::kNone:
      return "none";
    case Numa::kNode:
      return "node";
    case Numa::kSocket:
      return "socket";
    case Numa::kExclusive:
      return "exclusive";
    case Numa::kCoreComplex:
      return "core-complex";
  }
  return "unknown";
}

}  // namespace ddprun
