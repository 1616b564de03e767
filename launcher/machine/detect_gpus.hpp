// The GPUs of this machine and which of them a worker will see, without LibTorch: NVML, loaded at run time, knows them by UUID
// and PCI bus id; without it /dev/nvidia* at least counts them. detect.cpp asks, and only when somebody wants to know.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// What CUDA may show as one device: a GPU, or a MIG slice of one.
struct GpuDevice {
  std::string uuid;                 // "GPU-8932f937-...", "MIG-..."; empty: not known
  std::string bus_id;               // PCI, "0000:65:00.0"; empty: not known
  std::vector<std::string> slices;  // UUIDs of its MIG slices

  bool operator==(const GpuDevice&) const = default;
};

// All of this machine, in the order of their PCI bus ids: NVML's answer when libnvidia-ml.so.1 is there and works, else the
// device nodes, without UUIDs and bus ids.
std::vector<GpuDevice> find_gpus();

// What the driver says of its GPUs, through NVML: for people who look why one is missing.
struct DriverGpus {
  bool is_installed = false;         // NVML is there
  std::optional<unsigned> count{};   // nothing: the driver does not answer
  std::vector<std::string> names{};  // of the first 16
};
DriverGpus ask_driver();

// The device nodes alone: without NVML, whose start takes a tenth of a second and more.
std::vector<GpuDevice> gpus_by_device_nodes();

// Those that CUDA shows under this CUDA_VISIBLE_DEVICES, in its order. As CUDA does: entries are indices or UUIDs, the first
// says which; a UUID may be cut short while it stays unique; the list ends at the first entry that is no device; a device that
// comes twice hides all. Each MIG slice that is named counts. UUIDs are trusted where the devices' own are not known. Pure.
std::vector<GpuDevice> visible_gpus(const std::vector<GpuDevice>& devices, const std::optional<std::string>& visible);

// Render nodes in `drm` that belong to Intel's drivers.
int count_intel_gpus(const std::filesystem::path& drm = "/sys/class/drm");
// How many of them ZE_AFFINITY_MASK ("0,2" or, with tiles, "0.0,0.1") leaves. Pure.
int visible_xpus(int devices, const std::optional<std::string>& mask);

}  // namespace ddprun
