// Implementation of plan_placement.hpp. The binding itself is bind_workers() (launcher/machine/numa_binding.hpp).
#include "launcher/plan/plan_placement.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/machine/numa_binding.hpp"
#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

// torchrun splits at every comma, so "0,1," has three entries and "" has one; each may be a value.
std::vector<std::string> split_at_commas(std::string_view list) {
  std::vector<std::string> entries(1);
  for (const char c : list) {
    if (c == ',') {
      entries.emplace_back();
    } else {
      entries.back() += c;
    }
  }
  return entries;
}

std::string stripped(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\v\f");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n\v\f") - first + 1);
}

// The PCI bus ids of the GPUs, if workers must run near GPUs.
std::vector<std::string> bus_ids_for(const Plan& plan, const Machine& machine) {
  std::vector<std::string> ids;
  if (plan.kind == Plan::Kind::kTrain && plan.device == "cpu") return ids;
  for (const GpuDevice& gpu : machine.gpu_devices()) {
    if (gpu.bus_id.empty()) {
      throw UsageError(
          "--numa-binding puts each worker near its GPU, and where the GPUs are is not known: NVML (libnvidia-ml.so.1) cannot "
          "be used. Install the driver's library, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to bind without them");
    }
    ids.push_back(gpu.bus_id);
  }
  return ids;
}

void bind_to_cpus(Plan& plan, const Machine& machine) {
  const std::vector<std::string> bus_ids = bus_ids_for(plan, machine);
  const Topology topology = machine.topology(bus_ids);
  const auto sets = bind_workers(topology, plan.numa, plan.nproc_per_node);
  const std::string source = std::string("--numa-binding ") + name_of(plan.numa);
  for (std::size_t rank = 0; rank < sets.size(); ++rank) {
    const std::string near = bus_ids.empty() ? "" : ", near GPU " + bus_ids[rank];
    plan.sources.push_back({"cpus_of_local_rank_" + std::to_string(rank), cpu_list(sets[rank]), source + near});
    plan.places[rank].cpus = sets[rank];
  }
}

void choose_threads(Plan& plan, const std::function<std::optional<std::string>(std::string_view)>& environment) {
  constexpr std::int64_t kMostCpus = 1 << 16;  // upper limit for the CPUs of one machine
  if (plan.as_torchrun || plan.nproc_per_node <= 1 || environment("OMP_NUM_THREADS")) return;
  const std::int64_t cpus = parse_whole(environment("SLURM_CPUS_PER_TASK").value_or("")).value_or(0);
  if (!environment("SLURM_JOB_ID") || cpus <= plan.nproc_per_node || cpus > kMostCpus) return;
  plan.threads_per_worker = static_cast<int>(cpus / plan.nproc_per_node);
  plan.sources.push_back(
      {"omp_num_threads", std::to_string(plan.threads_per_worker), "Slurm's SLURM_CPUS_PER_TASK, for each worker"});
}

}  // namespace

std::vector<WorkerPlace::Variable> only_device_of(
    int local_rank, const std::function<std::optional<std::string>(std::string_view)>& environment) {
  const std::string cuda = "CUDA_VISIBLE_DEVICES", hip = "HIP_VISIBLE_DEVICES";
  const bool from_hip = !environment(hip).value_or("").empty();
  const std::string& source = from_hip ? hip : cuda;
  const auto visible = environment(source);
  if (!visible) return {{cuda, std::to_string(local_rank)}};
  const std::vector<std::string> devices = split_at_commas(*visible);
  if (static_cast<std::size_t>(local_rank) >= devices.size()) {
    throw UsageError("--virtual-local-rank: " + source + "=" + *visible + " names " + std::to_string(devices.size()) +
                     (devices.size() == 1 ? " device" : " devices") + ", none for local rank " + std::to_string(local_rank) +
                     ": start fewer workers or name more devices");
  }
  const std::string device = stripped(devices[static_cast<std::size_t>(local_rank)]);
  std::vector<WorkerPlace::Variable> variables{{cuda, device}};
  if (from_hip) variables.push_back({hip, device});
  return variables;
}

void place_workers(Plan& plan, const Machine& machine,
                   const std::function<std::optional<std::string>(std::string_view)>& environment) {
  plan.places.assign(static_cast<std::size_t>(plan.nproc_per_node), {});
  if (plan.virtual_local_rank) {
    for (int rank = 0; rank < plan.nproc_per_node; ++rank)
      plan.places[static_cast<std::size_t>(rank)].only_device = only_device_of(rank, environment);
  }
  choose_threads(plan, environment);
  if (plan.numa != Numa::kNone) bind_to_cpus(plan, machine);
}

}  // namespace ddprun
