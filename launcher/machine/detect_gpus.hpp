// Finds the GPUs of this machine, and which of them are visible to a worker, without LibTorch. NVML, which is loaded at run
// time, provides UUIDs and PCI bus ids. If NVML is missing, the files /dev/nvidia* give the number of GPUs. detect.cpp calls
// these functions, and only on demand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// One device as CUDA lists it: a GPU, or a MIG slice of a GPU.
struct GpuDevice {
  std::string uuid;                 // such as "GPU-8932f937-..." or "MIG-..."; empty if unknown
  std::string bus_id;               // PCI address, such as "0000:65:00.0"; empty if unknown
  std::vector<std::string> slices;  // UUIDs of the GPU's MIG slices

  bool operator==(const GpuDevice&) const = default;
};

// Returns all GPUs of this machine, in the order of their PCI bus ids. The source is NVML if libnvidia-ml.so.1 is installed and
// works. Otherwise the source is the device files, and UUIDs and bus ids are empty.
std::vector<GpuDevice> find_gpus();

// Information from the NVIDIA driver about its GPUs, read through NVML. This information helps users to find out why a GPU is
// missing.
struct DriverGpus {
  bool is_installed = false;         // NVML is installed
  std::optional<unsigned> count{};   // nullopt if the driver does not answer
  std::vector<std::string> names{};  // names of the first 16 GPUs
};
DriverGpus query_driver();

// The current usage of a device, as reported by NVML.
struct GpuUse {
  std::string uuid{};
  std::optional<unsigned> percent{};  // percentage of time during which a kernel ran; nullopt if unknown (MIG slice)
  std::optional<std::uint64_t> used_bytes{};
  std::optional<std::uint64_t> total_bytes{};
  std::vector<std::uint32_t> pids{};  // processes that use the device for computing; at most 256
};
// Returns the current usage of the devices that CUDA lists for this value of CUDA_VISIBLE_DEVICES, in CUDA's order. Returns
// nullopt if NVML is not installed or does not answer. The call may take long, and may hang in the kernel if a driver is
// broken. So call it in a separate process.
std::optional<std::vector<GpuUse>> use_of_gpus(const std::optional<std::string>& visible);

// A GPU with the counters of its hardware faults. Values are nullopt if NVML does not report them for this model.
struct GpuHealth {
  GpuDevice device{};
  std::string name{};
  bool has_mig = false;                               // MIG mode is on
  std::optional<std::uint64_t> uncorrected_errors{};  // ECC errors since the driver was loaded
  bool remap_pending = false;                         // a reset would replace defective rows or pages of memory
  bool remap_failed = false;
  std::optional<std::uint64_t> slowdown_reasons{};  // bits of nvmlClocksEventReasons
  std::optional<int> active_links{};                // number of active NVLinks
  std::optional<std::uint64_t> used_bytes{};
  std::optional<std::uint64_t> total_bytes{};
};
struct DriverHealth {
  bool is_installed = false;                     // NVML is installed
  std::optional<std::vector<GpuHealth>> gpus{};  // nullopt if the driver does not answer
};
// Like use_of_gpus(), this call may hang in the kernel, so call it in a separate process.
DriverHealth health_of_gpus();

// Finds the GPUs from the device files only, since NVML takes a tenth of a second or more to start.
std::vector<GpuDevice> gpus_by_device_nodes();

// Returns the devices that CUDA lists for this value of CUDA_VISIBLE_DEVICES, in CUDA's order. The function applies the rules
// of CUDA. The first entry decides whether all entries are indices or UUIDs. A UUID may be shortened as long as it stays
// unique. The list ends at the first invalid entry. If a device is named twice, no device is visible. Each named MIG slice
// counts as a device. If the devices' own UUIDs are unknown, each UUID is accepted. The code is pure: no I/O, no clock.
std::vector<GpuDevice> visible_gpus(const std::vector<GpuDevice>& devices, const std::optional<std::string>& visible);

// Returns the number of render nodes in the folder `drm` that belong to Intel's drivers.
int count_intel_gpus(const std::filesystem::path& drm = "/sys/class/drm");
// Returns the number of `devices` that remain visible under ZE_AFFINITY_MASK ("0,2" or, with tiles, "0.0,0.1"). The code is
// pure: no I/O, no clock.
int visible_xpus(int devices, const std::optional<std::string>& mask);

}  // namespace ddprun
