// Properties of this machine: the CPUs available to this process, the GPUs visible to its workers, and programs on PATH.
// plan.cpp queries them through Machine, so that tests can pass constants. Each property is detected only when it is needed,
// since ddprun must start quickly.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/machine/detect_gpus.hpp"
#include "launcher/machine/interface_addresses.hpp"
#include "launcher/machine/program_output.hpp"
#include "launcher/machine/standard_input.hpp"
#include "launcher/machine/topology.hpp"

namespace ddprun {

struct Machine {
  std::function<int()> cpus;  // number of CPUs that a job may use; at least 1
  std::function<int()> gpus;  // number of GPUs visible to a worker
  std::function<std::optional<std::filesystem::path>(std::string_view)> on_path;  // searches PATH for an executable
  // Returns the path of an executable with that name in the folder of the running ddprun.
  std::function<std::optional<std::filesystem::path>(std::string_view)> next_to_self;
  std::function<int()> xpus = [] { return 0; };  // number of Intel GPUs visible to a worker
  std::function<std::vector<GpuDevice>()> gpu_devices = [] {
    return std::vector<GpuDevice>();
  };  // properties of the GPUs that `gpus` counts
  // Returns the CPUs, caches and NUMA nodes of this machine, and the NUMA nodes of the PCI devices. Throws UsageError if they
  // cannot be determined.
  std::function<Topology(const std::vector<std::string>& bus_ids)> topology = read_topology;
  std::function<int()> gpu_nodes = [] { return 0; };  // number of visible GPUs, counted from the device files
  std::function<StandardInput()> standard_input = [] { return StandardInput(); };
  // Returns the address of an interface. Throws UsageError.
  std::function<std::string(const std::string& name)> address_of = address_of_interface;
  // Runs a program and returns its output. Use this only for information that is not available in another way.
  std::function<ProgramOutput(const std::vector<std::string>& command)> output_of_program = [](const auto& command) {
    return output_of(command);
  };
};

Machine this_machine();

// The number of CPUs in the affinity mask, and the CPU quota: the tightest cgroup quota (v1 or v2) of this process and all
// ancestors.
struct CpuCount {
  int affinity = 1;
  double quota = 0;  // quota of CPU time, in CPUs; 0: no quota
  int usable() const;
};
CpuCount count_cpus();

// Returns the quota, in CPUs, from the text of "cpu.max" of cgroup v2 ("200000 100000" -> 2.0). Returns 0 for "max" and any
// other text. The code is pure: no I/O, no clock.
double quota_of_cpu_max(std::string_view text);
// Returns the quota in CPUs. The arguments are the contents of cpu.cfs_quota_us and cpu.cfs_period_us of cgroup v1. Returns 0
// if there is no quota. The code is pure: no I/O, no clock.
double quota_of_cfs(std::string_view quota_us, std::string_view period_us);

// Searches PATH as execvp does. Returns nullopt if PATH has no executable file of that name.
std::optional<std::filesystem::path> find_on_path(std::string_view name);

}  // namespace ddprun
