#include "launcher/doctor/observe_gpus.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "common/system/descriptor.hpp"
#include "launcher/machine/detect_gpus.hpp"

namespace ddprun::doctor {
namespace {

// Returns the records of the kernel log. The text is empty if this user may not read the log, as in most containers.
std::string kernel_log() {
  constexpr std::size_t kMaxBytes = 16U << 20;  // larger than the kernel's buffer usually is
  const Descriptor log(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string text;
  std::array<char, 8192> record{};
  while (log.get() >= 0 && text.size() < kMaxBytes) {
    const ssize_t count = ::read(log.get(), record.data(), record.size());
    // EPIPE: the record was overwritten; the next read() returns the next record
    if (count < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (count <= 0) break;
    text.append(record.data(), static_cast<std::size_t>(count));
  }
  return text;
}

double seconds_since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // the kernel log's clock
  return static_cast<double>(now.tv_sec);
}

Gpu gpu_of(GpuHealth health) {
  return {.uuid = std::move(health.device.uuid),
          .name = std::move(health.name),
          .slices = std::move(health.device.slices),
          .has_mig = health.has_mig,
          .uncorrected_errors = health.uncorrected_errors,
          .remap_pending = health.remap_pending,
          .remap_failed = health.remap_failed,
          .slowdown_reasons = health.slowdown_reasons,
          .active_links = health.active_links,
          .used_bytes = health.used_bytes,
          .total_bytes = health.total_bytes};
}

}  // namespace

GpuFacts observe_gpus() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  GpuFacts facts{.device_files = static_cast<int>(gpus_by_device_nodes().size()),
                 .visible = value == nullptr ? std::nullopt : std::optional<std::string>(value)};
  DriverHealth driver = health_of_gpus();
  facts.has_nvml = driver.is_installed;
  facts.driver_answers = driver.gpus.has_value();
  std::vector<GpuDevice> devices;
  if (driver.gpus) {
    for (GpuHealth& health : *driver.gpus) {
      devices.push_back(health.device);
      facts.gpus.push_back(gpu_of(std::move(health)));
    }
  } else {
    devices = gpus_by_device_nodes();
    facts.gpus.resize(devices.size());
  }
  facts.usable = static_cast<int>(visible_gpus(devices, facts.visible).size());
  if (!facts.gpus.empty()) facts.xids = xids_in(kernel_log(), seconds_since_boot());
  return facts;
}

}  // namespace ddprun::doctor
