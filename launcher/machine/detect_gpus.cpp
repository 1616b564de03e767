// Implementation of detect_gpus.hpp. NVML has a stable C interface, so the few functions that ddprun uses are declared here
// and looked up by name at run time. A build therefore needs neither NVML's header nor the driver.
#include "launcher/machine/detect_gpus.hpp"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>

#include "common/base/split.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// ---- NVML ----

using NvmlDevice = void*;
constexpr int kNvmlSuccess = 0;
constexpr unsigned kMaxSlices = 16;
constexpr unsigned kMaxLinks = 18;  // NVML_NVLINK_MAX_LINKS

struct NvmlUtilization {  // nvmlUtilization_t
  unsigned gpu, memory;
};

struct NvmlMemory {  // nvmlMemory_t
  unsigned long long total, free, used;
};

struct NvmlProcess {  // nvmlProcessInfo_t of the _v3 functions
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};

struct NvmlPci {  // nvmlPciInfo_t of the _v3 functions
  std::array<char, 16> legacy_bus_id;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    load("nvmlInit_v2", init_);
    load("nvmlShutdown", shutdown_);
    load("nvmlDeviceGetCount_v2", count_);
    load("nvmlDeviceGetHandleByIndex_v2", by_index_);
    load("nvmlDeviceGetUUID", uuid_);
    load("nvmlDeviceGetName", name_);
    load("nvmlDeviceGetPciInfo_v3", pci_);
    load("nvmlDeviceGetMaxMigDeviceCount", max_slices_);
    load("nvmlDeviceGetMigDeviceHandleByIndex", slice_);
    load("nvmlDeviceGetHandleByUUID", by_uuid_);
    load("nvmlDeviceGetUtilizationRates", utilization_);
    load("nvmlDeviceGetMemoryInfo", memory_);
    load("nvmlDeviceGetComputeRunningProcesses_v3", processes_);
    load("nvmlDeviceGetMigMode", mig_mode_);
    load("nvmlDeviceGetTotalEccErrors", ecc_errors_);
    load("nvmlDeviceGetRemappedRows", remapped_rows_);
    load("nvmlDeviceGetRetiredPagesPendingStatus", pages_pending_);
    load("nvmlDeviceGetCurrentClocksThrottleReasons", slowdown_reasons_);
    load("nvmlDeviceGetNvLinkState", link_state_);
    started_ = init_ != nullptr && count_ != nullptr && init_() == kNvmlSuccess;
  }
  ~Nvml() {
    if (started_ && shutdown_ != nullptr) shutdown_();
    if (library_ != nullptr) ::dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::optional<std::vector<GpuDevice>> devices() const {
    unsigned count = 0;
    if (!started_ || count_(&count) != kNvmlSuccess) return std::nullopt;
    std::vector<GpuDevice> found(count);
    for (unsigned index = 0; index < count; ++index) {
      NvmlDevice handle = nullptr;
      if (by_index_ == nullptr || by_index_(index, &handle) != kNvmlSuccess) continue;
      found[index] = {.uuid = uuid_of(handle), .bus_id = bus_id_of(handle), .slices = slices_of(handle)};
    }
    return found;
  }

  DriverGpus driver_summary() const {
    constexpr unsigned kMaxNames = 16;
    DriverGpus driver{.is_installed = library_ != nullptr};
    unsigned count = 0;
    if (!started_ || by_index_ == nullptr || name_ == nullptr || count_(&count) != kNvmlSuccess) return driver;
    driver.count = count;
    for (unsigned index = 0; index < std::min(count, kMaxNames); ++index) {
      NvmlDevice handle = nullptr;
      std::array<char, 96> name{};
      if (by_index_(index, &handle) == kNvmlSuccess && name_(handle, name.data(), name.size()) == kNvmlSuccess)
        driver.names.emplace_back(name.data());
    }
    return driver;
  }

  DriverHealth health() const {
    DriverHealth driver{.is_installed = library_ != nullptr};
    const auto found = devices();
    if (!found) return driver;
    driver.gpus.emplace();
    for (unsigned index = 0; index < found->size(); ++index) {
      driver.gpus->push_back({.device = (*found)[index]});
      NvmlDevice handle = nullptr;
      if (by_index_ != nullptr && by_index_(index, &handle) == kNvmlSuccess) read_health(handle, driver.gpus->back());
    }
    return driver;
  }

  GpuUse use_of(const GpuDevice& device) const {
    GpuUse use{.uuid = device.uuid};
    NvmlDevice handle = nullptr;
    if (by_uuid_ == nullptr || by_uuid_(device.uuid.c_str(), &handle) != kNvmlSuccess) return use;
    NvmlUtilization utilization{};
    if (utilization_ != nullptr && utilization_(handle, &utilization) == kNvmlSuccess) use.percent = utilization.gpu;
    NvmlMemory memory{};
    if (memory_ != nullptr && memory_(handle, &memory) == kNvmlSuccess) {
      use.used_bytes = memory.used;
      use.total_bytes = memory.total;
    }
    constexpr unsigned kMaxProcesses = 256;
    std::array<NvmlProcess, kMaxProcesses> processes{};
    unsigned count = kMaxProcesses;
    if (processes_ != nullptr && processes_(handle, &count, processes.data()) == kNvmlSuccess) {
      for (unsigned i = 0; i < std::min(count, kMaxProcesses); ++i) use.pids.push_back(processes[i].pid);
    }
    return use;
  }

 private:
  template <class Function>
  void load(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library_, name));
  }

  void read_health(NvmlDevice handle, GpuHealth& health) const {
    constexpr int kUncorrected = 1, kSinceDriverLoad = 0;  // nvmlMemoryErrorType_t, nvmlEccCounterType_t
    std::array<char, 96> name{};
    if (name_ != nullptr && name_(handle, name.data(), name.size()) == kNvmlSuccess) health.name = name.data();
    unsigned mode = 0, pending_mode = 0;
    if (mig_mode_ != nullptr && mig_mode_(handle, &mode, &pending_mode) == kNvmlSuccess) health.has_mig = mode != 0;
    unsigned long long number = 0;
    if (ecc_errors_ != nullptr && ecc_errors_(handle, kUncorrected, kSinceDriverLoad, &number) == kNvmlSuccess)
      health.uncorrected_errors = number;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (remapped_rows_ != nullptr && remapped_rows_(handle, &corrected, &uncorrected, &pending, &failed) == kNvmlSuccess) {
      health.remap_pending = pending != 0;
      health.remap_failed = failed != 0;
    }
    int pages_pending = 0;
    if (pages_pending_ != nullptr && pages_pending_(handle, &pages_pending) == kNvmlSuccess && pages_pending != 0)
      health.remap_pending = true;
    if (slowdown_reasons_ != nullptr && slowdown_reasons_(handle, &number) == kNvmlSuccess) health.slowdown_reasons = number;
    health.active_links = active_links_of(handle);
    NvmlMemory memory{};
    if (memory_ != nullptr && memory_(handle, &memory) == kNvmlSuccess) {
      health.used_bytes = memory.used;
      health.total_bytes = memory.total;
    }
  }

  std::optional<int> active_links_of(NvmlDevice handle) const {
    std::optional<int> active;
    for (unsigned link = 0; link_state_ != nullptr && link < kMaxLinks; ++link) {
      int is_active = 0;
      if (link_state_(handle, link, &is_active) == kNvmlSuccess) active = active.value_or(0) + (is_active != 0 ? 1 : 0);
    }
    return active;
  }

  std::string uuid_of(NvmlDevice handle) const {
    std::array<char, 96> text{};
    if (uuid_ == nullptr || uuid_(handle, text.data(), text.size()) != kNvmlSuccess) return {};
    return text.data();
  }

  // Returns the PCI bus id in the form of sysfs: the domain has four digits, while NVML writes eight.
  std::string bus_id_of(NvmlDevice handle) const {
    NvmlPci pci{};
    if (pci_ == nullptr || pci_(handle, &pci) != kNvmlSuccess) return {};
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
    return text.data();
  }

  std::vector<std::string> slices_of(NvmlDevice handle) const {
    unsigned most = 0;
    std::vector<std::string> uuids;
    if (max_slices_ == nullptr || slice_ == nullptr || max_slices_(handle, &most) != kNvmlSuccess) return uuids;
    for (unsigned index = 0; index < std::min(most, kMaxSlices); ++index) {
      NvmlDevice slice = nullptr;
      if (slice_(handle, index, &slice) == kNvmlSuccess) uuids.push_back(uuid_of(slice));
    }
    return uuids;
  }

  void* library_;
  bool started_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*by_index_)(unsigned, NvmlDevice*) = nullptr;
  int (*uuid_)(NvmlDevice, char*, unsigned) = nullptr;
  int (*name_)(NvmlDevice, char*, unsigned) = nullptr;
  int (*pci_)(NvmlDevice, NvmlPci*) = nullptr;
  int (*max_slices_)(NvmlDevice, unsigned*) = nullptr;
  int (*slice_)(NvmlDevice, unsigned, NvmlDevice*) = nullptr;
  int (*by_uuid_)(const char*, NvmlDevice*) = nullptr;
  int (*utilization_)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*memory_)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*processes_)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  int (*mig_mode_)(NvmlDevice, unsigned*, unsigned*) = nullptr;
  int (*ecc_errors_)(NvmlDevice, int, int, unsigned long long*) = nullptr;
  int (*remapped_rows_)(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  int (*pages_pending_)(NvmlDevice, int*) = nullptr;
  int (*slowdown_reasons_)(NvmlDevice, unsigned long long*) = nullptr;
  int (*link_state_)(NvmlDevice, unsigned, int*) = nullptr;
};

// ---- without NVML ----

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// ---- CUDA_VISIBLE_DEVICES ----

std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries = split(list, ',');
  for (std::string_view& entry : entries) entry = without_spaces_around(entry);
  return entries;
}

bool is_uuid(std::string_view entry) {
  return entry.starts_with("GPU-") || entry.starts_with("MIG-");
}

std::optional<GpuDevice> by_index(const std::vector<GpuDevice>& devices, std::string_view entry) {
  std::size_t index = 0;
  const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (error != std::errc() || index >= devices.size()) return std::nullopt;
  return devices[index];
}

// Returns the only device whose UUID starts with `entry`. Returns nullopt if there is none or more than one.
std::optional<GpuDevice> by_uuid(const std::vector<GpuDevice>& devices, std::string_view entry) {
  const bool unknown = std::all_of(devices.begin(), devices.end(), [](const GpuDevice& d) { return d.uuid.empty(); });
  if (unknown) return GpuDevice{.uuid = std::string(entry), .bus_id = {}, .slices = {}};
  std::vector<GpuDevice> matches;
  for (const GpuDevice& device : devices) {
    if (entry.starts_with("GPU-") && device.uuid.starts_with(entry)) matches.push_back(device);
    for (const std::string& slice : device.slices) {
      if (slice.starts_with(entry)) matches.push_back({.uuid = slice, .bus_id = device.bus_id, .slices = {}});
    }
  }
  if (matches.size() != 1) return std::nullopt;
  return matches.front();
}

}  // namespace

std::vector<GpuDevice> gpus_by_device_nodes() {
  std::vector<GpuDevice> found;
  if (DIR* dev = ::opendir("/dev")) {
    while (const dirent* entry = ::readdir(dev)) {
      const std::string_view name = entry->d_name;
      if (name.starts_with("nvidia") && is_number(name.substr(6))) found.emplace_back();
    }
    ::closedir(dev);
  }
  return found;
}

DriverGpus query_driver() {
  return Nvml().driver_summary();
}

std::optional<std::vector<GpuUse>> use_of_gpus(const std::optional<std::string>& visible) {
  const Nvml nvml;
  const auto devices = nvml.devices();
  if (!devices) return std::nullopt;
  std::vector<GpuUse> uses;
  for (const GpuDevice& device : visible_gpus(*devices, visible)) uses.push_back(nvml.use_of(device));
  return uses;
}

DriverHealth health_of_gpus() {
  return Nvml().health();
}

std::vector<GpuDevice> find_gpus() {
  if (auto devices = Nvml().devices()) return *std::move(devices);
  return gpus_by_device_nodes();
}

std::vector<GpuDevice> visible_gpus(const std::vector<GpuDevice>& devices, const std::optional<std::string>& visible) {
  if (!visible || devices.empty()) return devices;
  std::vector<GpuDevice> chosen;
  std::set<std::string> seen;
  const std::vector<std::string_view> entries = entries_of(*visible);
  for (const std::string_view entry : entries) {
    if (is_uuid(entry) != is_uuid(entries.front())) break;
    const auto device = is_uuid(entry) ? by_uuid(devices, entry) : by_index(devices, entry);
    if (!device) break;
    const std::string identity =
        is_uuid(entry) ? device->uuid : std::string(entry.substr(0, entry.find_first_not_of("0123456789")));
    if (!seen.insert(identity).second) return {};
    chosen.push_back(*device);
  }
  return chosen;
}

int count_intel_gpus(const fs::path& drm) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(drm, error)) {
    if (!entry.path().filename().string().starts_with("renderD")) continue;
    const std::string driver = fs::read_symlink(entry.path() / "device" / "driver", error).filename().string();
    if (driver == "i915" || driver == "xe") ++count;
  }
  return count;
}

int visible_xpus(int devices, const std::optional<std::string>& mask) {
  if (!mask || mask->empty()) return devices;
  std::set<int> seen;
  for (const std::string_view entry : entries_of(*mask)) {
    int index = 0;
    const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
    if (error == std::errc() && index >= 0 && index < devices) seen.insert(index);
  }
  return static_cast<int>(seen.size());
}

}  // namespace ddprun
