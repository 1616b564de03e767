// Properties of this machine: CPUs available to this process, GPUs visible to its workers, programs on PATH. plan.cpp queries
// them through Machine, so tests can use constants. Each property is detected only when it is needed, since a start has to be
// quick.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/machine/detect_gpus.hpp"
#include "launcher/machine/interfaces.hpp"
#include "launcher/machine/program_output.hpp"
#include "launcher/machine/standard_input.hpp"
#include "launcher/machine/topology.hpp"

namespace ddprun {

struct Machine {
  std::function<int()> cpus;                                                          // at least 1
  std::function<int()> gpus;                                                          // GPUs that a worker will see; 0: none
  std::function<std::optional<std::filesystem::path>(std::string_view)> on_path;      // an executable of that name on PATH
  std::function<std::optional<std::filesystem::path>(std::string_view)> beside_self;  // next to the running ddprun
  std::function<int()> xpus = [] { return 0; };                                       // Intel GPUs that a worker will see
  std::function<std::vector<GpuDevice>()> gpu_devices = [] {
    return std::vector<GpuDevice>();
  };  // the devices that `gpus` counts
  // CPUs, caches and NUMA nodes of this machine, and the NUMA nodes of the PCI devices. Throws UsageError if they cannot be
  // determined.
  std::function<Topology(const std::vector<std::string>& bus_ids)> topology = read_topology;
  std::function<int()> gpu_nodes = [] { return 0; };  // like `gpus`, but from device files only, without NVML
  std::function<StandardInput()> standard_input = [] { return StandardInput(); };
  std::function<std::string(const std::string& name)> address_of = address_of_interface;  // throws UsageError
  // The output of a program. It is run only if the information is not available otherwise.
  std::function<ProgramOutput(const std::vector<std::string>& command)> printed_by = [](const auto& command) {
    return output_of(command);
  };
};

Machine this_machine();

// The CPUs of the affinity mask, limited by the tightest cgroup quota (v1 or v2) of all ancestors.
struct CpuCount {
  int affinity = 1;
  double quota = 0;  // in CPUs; 0: no quota
  int usable() const;
};
CpuCount count_cpus();

// The quota in "cpu.max" of cgroup v2 ("200000 100000" -> 2.0); 0 for "max" and anything else. Pure.
double quota_of_cpu_max(std::string_view text);
// The same for v1's cpu.cfs_quota_us and cpu.cfs_period_us. Pure.
double quota_of_cfs(std::string_view quota_us, std::string_view period_us);

// Searches like execvp: nullopt if PATH has no executable file of that name.
std::optional<std::filesystem::path> find_on_path(std::string_view name);

}  // namespace ddprun
