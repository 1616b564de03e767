// Implementation of plan_placement.hpp. bind_workers() (launcher/machine/numa_binding.hpp) chooses the CPUs.
#include "launcher/plan/plan_placement.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/base/split.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/machine/numa_binding.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/parse_number.hpp"
#include "launcher/plan/plan_input.hpp"
#include "launcher/plan/plan_trainer.hpp"

namespace ddprun {
namespace {

// Warns that only one worker is started although the machine has several GPUs. One worker is the default for scripts, as under
// torchrun.
void mention_idle_gpus(Plan& plan, const Machine& machine) {
  if (plan.as_torchrun || plan.kind == Plan::Kind::kProgram) return;
  if (const int gpus = machine.gpu_nodes(); gpus > 1) {
    plan.warnings.push_back("1 worker is started, but " + std::to_string(gpus) +
                            " GPUs are visible: --nproc-per-node gpu starts one worker for each GPU");
  }
}

int count_workers(const Settings& settings, const Setting& setting, const Machine& machine) {
  if (setting.value == "cpu") return machine.cpus();
  if (setting.value == "gpu" || setting.value == "auto") {
    const int gpus = machine.gpus();
    if (gpus > 0) return gpus;
    if (setting.value == "auto") return machine.xpus() > 0 ? machine.xpus() : machine.cpus();
    throw UsageError("--nproc-per-node gpu (" + setting.source +
                     "): no GPU is visible; check nvidia-smi, /dev/nvidia* and CUDA_VISIBLE_DEVICES");
  }
  if (setting.value == "xpu") {
    if (const int xpus = machine.xpus(); xpus > 0) return xpus;
    throw UsageError("--nproc-per-node xpu (" + setting.source +
                     "): no Intel GPU is visible; check /dev/dri/renderD* (driver i915 or xe) and ZE_AFFINITY_MASK");
  }
  check_worker_count(settings);
  return static_cast<int>(settings.integer("nproc-per-node", 1, kMaxWorkers));
}

std::string stripped(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\v\f");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n\v\f") - first + 1));
}

// Returns the PCI bus ids of the visible GPUs, near which the workers are placed. The result is empty if the job does not use
// GPUs.
std::vector<std::string> bus_ids_for(const Plan& plan, const Machine& machine) {
  std::vector<std::string> ids;
  if (plan.kind == Plan::Kind::kTrain && plan.device == "cpu") return ids;
  for (const GpuDevice& gpu : machine.gpu_devices()) {
    if (gpu.bus_id.empty()) {
      throw UsageError(
          "--numa-binding puts each worker near its GPU, but the locations of the GPUs are unknown: NVML (libnvidia-ml.so.1) "
          "cannot be used. Install the driver's library, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to bind without them");
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
    plan.record("cpus_of_local_rank_" + std::to_string(rank), cpu_list(sets[rank]), source + near);
    plan.places[rank].cpus = sets[rank];
  }
}

void choose_threads(Plan& plan, const Environment& environment) {
  constexpr std::int64_t kMaxCpus = 1 << 16;  // larger numbers in SLURM_CPUS_PER_TASK are ignored
  if (plan.as_torchrun || plan.nproc_per_node <= 1 || environment("OMP_NUM_THREADS")) return;
  const std::int64_t cpus = parse_whole(environment("SLURM_CPUS_PER_TASK").value_or("")).value_or(0);
  if (!environment("SLURM_JOB_ID") || cpus <= plan.nproc_per_node || cpus > kMaxCpus) return;
  plan.threads_per_worker = static_cast<int>(cpus / plan.nproc_per_node);
  plan.record("omp_num_threads", std::to_string(plan.threads_per_worker), "Slurm's SLURM_CPUS_PER_TASK, for each worker");
}

}  // namespace

void check_worker_count(const Settings& settings) {
  const Setting* const setting = settings.find("nproc-per-node");
  if (setting == nullptr) return;
  const auto words = words_of(*find_option("nproc-per-node"));
  if (std::ranges::find(words, setting->value) != words.end()) return;
  if (!reads_as_whole(setting->value)) refuse("nproc-per-node", *setting, "a number of workers, auto, cpu, gpu or xpu");
  settings.integer("nproc-per-node", 1, kMaxWorkers);
}

void choose_workers(Plan& plan, const Settings& settings, const Machine& machine, const Environment& environment) {
  const Setting* setting = settings.find("nproc-per-node");
  const bool on_cpu = plan.trains() && plan.config->device == TrainConfig::Device::kCpu;
  std::string source;
  if (setting == nullptr) {
    const int gpus = plan.trains() && !on_cpu ? machine.gpus() : 0;
    plan.nproc_per_node = std::max(1, gpus);
    source = gpus > 0 ? "default: the number of GPUs" : "default";
    plan.worker_per_gpu = gpus > 0;
  } else {
    plan.nproc_per_node = count_workers(settings, *setting, machine);
    source = setting->source;
    plan.worker_per_gpu =
        plan.trains() && !on_cpu && (setting->value == "gpu" || setting->value == "auto") && machine.gpus() > 0;
  }
  plan.record("nproc_per_node", std::to_string(plan.nproc_per_node), source);
  if (!plan.trains()) {
    if (setting == nullptr) mention_idle_gpus(plan, machine);
    return;
  }

  const TrainConfig& config = *plan.config;
  const bool shared = environment("DDPTRAIN_SHARE_GPU") == "1" && machine.gpus() > 0;
  if (config.device == TrainConfig::Device::kCuda && plan.nproc_per_node > machine.gpus() && !shared) {
    throw UsageError("more workers than GPUs: " + std::to_string(plan.nproc_per_node) + " workers (" + source +
                     ") each need a GPU, but the number of visible GPUs is " + std::to_string(machine.gpus()) +
                     " (see nvidia-smi, CUDA_VISIBLE_DEVICES). Start fewer workers, or set \"device\": \"cpu\"");
  }
  if (config.batch_size < plan.nproc_per_node) {
    throw UsageError(
        "batch_size " + std::to_string(config.batch_size) + " is smaller than the number of workers, " +
        std::to_string(plan.nproc_per_node) + " (" + source +
        "). batch_size is the total over all workers, and each worker needs at least one sample. Increase batch_size, or start "
        "fewer workers");
  }
  plan.device = on_cpu ? "cpu" : config.device == TrainConfig::Device::kCuda ? "cuda" : machine.gpus() == 0 ? "cpu" : "auto";
  plan.record("device", plan.device, "config" + std::string(config.device == TrainConfig::Device::kAuto ? ": auto" : ""));
}

void choose_input(Plan& plan, const Machine& machine) {
  plan.input = input_of_workers(plan.kind, plan.nproc_per_node, machine.standard_input());
  if (plan.input == WorkersInput::kOurs) plan.record("standard_input", "passed on", "default for scripts");
  if (plan.input == WorkersInput::kTerminalIsKept) {
    plan.record("standard_input", "/dev/null", "only a single worker in the foreground gets a terminal");
  }
}

std::vector<WorkerPlace::Variable> only_device_of(int local_rank, const Environment& environment) {
  const std::string cuda = "CUDA_VISIBLE_DEVICES", hip = "HIP_VISIBLE_DEVICES";
  const bool from_hip = !environment(hip).value_or("").empty();
  const std::string& source = from_hip ? hip : cuda;
  const auto visible = environment(source);
  if (!visible) return {{cuda, std::to_string(local_rank)}};
  const std::vector<std::string_view> devices = split(*visible, ',');  // split() keeps empty entries, as torchrun does
  if (static_cast<std::size_t>(local_rank) >= devices.size()) {
    throw UsageError("--virtual-local-rank: " + source + "=" + *visible + " names " + std::to_string(devices.size()) +
                     (devices.size() == 1 ? " device" : " devices") + ", but none for local rank " +
                     std::to_string(local_rank) + ": start fewer workers or name more devices");
  }
  const std::string device = stripped(devices[static_cast<std::size_t>(local_rank)]);
  std::vector<WorkerPlace::Variable> variables{{cuda, device}};
  if (from_hip) variables.push_back({hip, device});
  return variables;
}

void choose_placement(Plan& plan, const Settings& settings) {
  plan.virtual_local_rank = settings.flag("virtual-local-rank");
  if (plan.virtual_local_rank) plan.record("virtual-local-rank", *settings.find("virtual-local-rank"));
  const Setting* numa = settings.find("numa-binding");
  if (numa == nullptr) return;
  for (const Numa mode : {Numa::kNode, Numa::kSocket, Numa::kExclusive, Numa::kCoreComplex}) {
    if (numa->value == name_of(mode)) plan.numa = mode;
  }
  plan.record("numa-binding", *numa);
}

void place_workers(Plan& plan, const Machine& machine, const Environment& environment) {
  plan.places.assign(static_cast<std::size_t>(plan.nproc_per_node), {});
  if (plan.virtual_local_rank) {
    for (int rank = 0; rank < plan.nproc_per_node; ++rank)
      plan.places[static_cast<std::size_t>(rank)].only_device = only_device_of(rank, environment);
  }
  choose_threads(plan, environment);
  if (plan.numa != Numa::kNone) bind_to_cpus(plan, machine);
}

}  // namespace ddprun
