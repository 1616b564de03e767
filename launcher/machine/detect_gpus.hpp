// The GPUs of this machine, and which of them a worker will see, without LibTorch. NVML, loaded at run time, knows them by UUID
// and PCI bus id; without it /dev/nvidia* at least counts them. detect.cpp calls it, and only on demand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// What CUDA can show as one device: a GPU, or a MIG slice of one.
struct GpuDevice {
  std::string uuid;                 // "GPU-8932f937-...", "MIG-..."; empty: unknown
  std::string bus_id;               // PCI, "0000:65:00.0"; empty: unknown
  std::vector<std::string> slices;  // the UUIDs of its MIG slices

  bool operator==(const GpuDevice&) const = default;
};

// All GPUs of this machine in the order of their PCI bus ids: from NVML when libnvidia-ml.so.1 is there and works, else from
// the device files, without UUIDs and bus ids.
std::vector<GpuDevice> find_gpus();

// What the driver says of its GPUs, through NVML: for people who look why one is missing.
struct DriverGpus {
  bool is_installed = false;         // NVML is there
  std::optional<unsigned> count{};   // nothing: the driver does not answer
  std::vector<std::string> names{};  // of the first 16
};
DriverGpus ask_driver();

// What a device does at this moment, as NVML tells it.
struct GpuUse {
  std::string uuid{};
  std::optional<unsigned> percent{};  // of the time in which a kernel ran; nothing: not known, as of a MIG slice
  std::optional<std::uint64_t> used_bytes{};
  std::optional<std::uint64_t> total_bytes{};
  std::vector<std::uint32_t> pids{};  // that compute on it; at most 256
};
// Of the devices that CUDA shows under this CUDA_VISIBLE_DEVICES, in its order. Nothing: there is no NVML, or it does not
// answer. It may take long, and wait in the kernel where a driver is broken: ask it in a process of its own.
std::optional<std::vector<GpuUse>> use_of_gpus(const std::optional<std::string>& visible);

// From the device files alone: NVML takes a tenth of a second or more to start.
std::vector<GpuDevice> gpus_by_device_nodes();

// The devices that CUDA shows under this CUDA_VISIBLE_DEVICES, in its order. As in CUDA: entries are indices or UUIDs, the
// first entry says which; a UUID may be shortened while it stays unique; the list ends at the first entry that is no device; a
// device that is named twice hides all. Each named MIG slice counts as a device. If the devices' own UUIDs are unknown, each
// UUID is accepted. Pure.
std::vector<GpuDevice> visible_gpus(const std::vector<GpuDevice>& devices, const std::optional<std::string>& visible);

// The number of render nodes in `drm` that belong to Intel's drivers.
int count_intel_gpus(const std::filesystem::path& drm = "/sys/class/drm");
// How many of `devices` ZE_AFFINITY_MASK ("0,2" or, with tiles, "0.0,0.1") leaves visible. Pure.
int visible_xpus(int devices, const std::optional<std::string>& mask);

}  // namespace ddprun
