// Judges the GPUs: whether each worker gets one, and whether the hardware reports faults.
//
// CUDA reports "invalid device ordinal" only when a worker selects a GPU that does not exist, minutes after the start. The
// list in CUDA_VISIBLE_DEVICES causes most of these errors, since CUDA ends the list at the first wrong entry without a
// message. judge_gpus() finds that entry. visible_gpus() (launcher/machine/detect_gpus.hpp) explains the rules of the list.
//
// The hardware reports faults as Xid lines of the kernel log, ECC errors, rows to be remapped, slowdowns and lost NVLinks. We
// judge only Xids that a job cannot cause, since a program with an invalid address also causes an Xid. The code is pure: no
// I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/doctor/verdicts/check.hpp"
#include "launcher/doctor/verdicts/job_needs.hpp"

namespace ddprun::doctor {

struct Gpu {
  std::string uuid{};                 // empty if unknown
  std::string name{};                 // "NVIDIA H100 80GB HBM3"
  std::vector<std::string> slices{};  // UUIDs of its MIG slices
  bool has_mig = false;               // MIG mode is on
  // Values are nullopt if NVML does not report them for this model.
  std::optional<std::uint64_t> uncorrected_errors{};  // ECC errors since the driver was loaded
  bool remap_pending = false;                         // rows or pages to be replaced at the next reset
  bool remap_failed = false;
  std::optional<std::uint64_t> slowdown_reasons{};  // NVML's bits of clock event reasons
  std::optional<int> active_links{};                // NVLinks
  std::optional<std::uint64_t> used_bytes{};
  std::optional<std::uint64_t> total_bytes{};
};

// A line of the kernel log, "NVRM: Xid (PCI:0000:65:00): 79, ...".
struct Xid {
  int number = 0;
  std::string bus_id{};
  double age_s = 0;
};

struct GpuFacts {
  bool has_nvml = false;                 // libnvidia-ml.so.1 is installed
  bool driver_answers = false;           // NVML has reported the number of GPUs
  int device_files = 0;                  // /dev/nvidia0, ...
  std::vector<Gpu> gpus{};               // from NVML, or one empty entry per device file
  std::optional<std::string> visible{};  // CUDA_VISIBLE_DEVICES; nullopt if it is not set
  int usable = 0;                        // number of GPUs that a worker sees, by the rules of CUDA
  std::vector<Xid> xids{};
};
Checks judge_gpus(const GpuFacts& facts, const JobNeeds& needs);

// Describes the first entry of a CUDA_VISIBLE_DEVICES list that CUDA cannot use; empty if there is none. "-1" and an empty list
// hide all GPUs on purpose.
std::string problem_of_visible_list(std::string_view list, const std::vector<Gpu>& gpus);

// Returns the Xid messages in the records of /dev/kmsg, such as "6,1234,5678901,-;NVRM: Xid (PCI:0000:65:00): 79, ...".
// `uptime_s`: time since the boot.
std::vector<Xid> xids_in(std::string_view kernel_log, double uptime_s);

}  // namespace ddprun::doctor
