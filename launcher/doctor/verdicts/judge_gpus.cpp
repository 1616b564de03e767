#include "launcher/doctor/verdicts/judge_gpus.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>

#include "common/base/split.hpp"

namespace ddprun::doctor {
namespace {

using Gpus = JobNeeds::Gpus;
using Work = JobNeeds::Work;

bool is_uuid(std::string_view entry) {
  return entry.starts_with("GPU-") || entry.starts_with("MIG-");
}

std::string counted_gpus(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " GPU" : " GPUs");
}

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

// Returns the number that CUDA reads from the entry: the digits at its start. Returns nullopt if there are none, or if the
// number is too large.
std::optional<std::size_t> index_of(std::string_view entry) {
  std::size_t index = 0;
  const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  return error == std::errc() ? std::optional(index) : std::nullopt;
}

// Returns all UUIDs that start with the abbreviation `entry`.
std::vector<std::string> matches_of(std::string_view entry, const std::vector<Gpu>& gpus) {
  std::vector<std::string> matches;
  for (const Gpu& gpu : gpus) {
    if (entry.starts_with("GPU-") && gpu.uuid.starts_with(entry)) matches.push_back(gpu.uuid);
    std::ranges::copy_if(gpu.slices, std::back_inserter(matches), [&](const auto& slice) { return slice.starts_with(entry); });
  }
  return matches;
}

std::string problem_of_uuid(std::string_view entry, const std::vector<Gpu>& gpus, std::set<std::string>& seen) {
  const bool uuids_unknown = std::ranges::all_of(gpus, [](const Gpu& gpu) { return gpu.uuid.empty(); });
  const auto matches = uuids_unknown ? std::vector<std::string>{std::string(entry)} : matches_of(entry, gpus);
  if (matches.empty())
    return quoted(entry) + " is not a UUID of this machine's " + (entry.starts_with("MIG-") ? "MIG slices" : "GPUs");
  if (matches.size() > 1)
    return quoted(entry) + " is ambiguous: it is a prefix of " + std::to_string(matches.size()) + " UUIDs";
  if (!seen.insert(matches.front()).second) return "the device " + quoted(entry) + " is named twice, which hides all GPUs";
  return "";
}

std::string problem_of_index(std::string_view entry, std::size_t count, std::set<std::string>& seen) {
  const auto index = index_of(entry);
  if (!index) return quoted(entry) + " is neither a number nor a UUID";
  if (*index >= count) {
    return quoted(entry) + " is not a GPU of this machine, which has " + counted_gpus(count) + ", 0 to " +
           std::to_string(count - 1);
  }
  if (!seen.insert(std::to_string(*index)).second) return "the GPU " + quoted(entry) + " is named twice, which hides all GPUs";
  return "";
}

// ---- each worker needs a GPU ----

void judge_visible_list(Checks& checks, const GpuFacts& facts, const JobNeeds& needs) {
  if (!facts.visible || (needs.gpus == Gpus::kUnused && needs.work == Work::kTrain)) return;
  const std::string problem = problem_of_visible_list(*facts.visible, facts.gpus);
  if (problem.empty()) return;
  const std::string found = "CUDA_VISIBLE_DEVICES=" + *facts.visible + ": " + problem;
  const std::string remedy = "correct CUDA_VISIBLE_DEVICES: nvidia-smi -L lists the numbers and UUIDs of the GPUs";
  // If the machine has no GPU, the variable has no effect on a job that runs on CPUs.
  const bool matters = !facts.gpus.empty() || needs.gpus == Gpus::kRequired;
  checks.push_back(matters ? error("visible-devices", found, remedy) : warning("visible-devices", found, remedy));
}

void judge_mig(Checks& checks, const GpuFacts& facts, const JobNeeds& needs) {
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
    const Gpu& gpu = facts.gpus[i];
    if (!gpu.has_mig || !gpu.slices.empty()) continue;
    checks.push_back(error("visible-devices",
                           "GPU " + std::to_string(i) +
                               " is in MIG mode, but has no MIG slice, so no "
                               "program can use it",
                           "create slices (nvidia-smi mig -cgi ... -C), or disable MIG mode (nvidia-smi -mig 0)"));
  }
  const bool any_slices = std::ranges::any_of(facts.gpus, [](const Gpu& gpu) { return !gpu.slices.empty(); });
  if (!facts.visible && any_slices && needs.workers > 1 && needs.gpus != Gpus::kUnused) {
    checks.push_back(
        error("visible-devices",
              "the GPUs are divided into MIG slices, and without CUDA_VISIBLE_DEVICES each of the " +
                  std::to_string(needs.workers) + " workers sees only the first slice",
              "set CUDA_VISIBLE_DEVICES to the UUIDs of the slices (nvidia-smi -L), and add --virtual-local-rank"));
  }
}

void judge_number_of_workers(Checks& checks, const GpuFacts& facts, const JobNeeds& needs) {
  const auto usable = static_cast<std::size_t>(facts.usable);
  if (needs.gpus == Gpus::kUnused || needs.share_gpus || needs.workers <= facts.usable) return;
  const std::string found = std::to_string(needs.workers) + (needs.workers == 1 ? " worker" : " workers") + " on " +
                            counted_gpus(usable) + " that " + (usable == 1 ? "is" : "are") + " visible";
  if (needs.gpus == Gpus::kRequired || (usable > 0 && needs.work == Work::kTrain)) {
    checks.push_back(
        error("visible-devices", found, "start fewer workers (--nproc-per-node), make more GPUs visible, or use device=cpu"));
  } else if (usable > 0 && needs.work == Work::kPython) {
    checks.push_back(error("visible-devices",
                           found + ": a script that selects the GPU LOCAL_RANK ends with \"invalid device ordinal\"",
                           "start fewer workers (--nproc-per-node), or hide the GPUs from a script that trains on CPUs: "
                           "CUDA_VISIBLE_DEVICES="));
  }
}

// ---- faults of the hardware ----

struct XidMeaning {
  int number;
  const char* text;
};
// Xids that a job cannot cause, from NVIDIA's "Xid Errors" guide. Others (13, 31, 43, 45) are also caused by programs.
constexpr std::array kHardwareXids{XidMeaning{48, "double bit ECC error"},
                                   XidMeaning{62, "internal micro-controller halt"},
                                   XidMeaning{64, "row remapping failed"},
                                   XidMeaning{74, "NVLink error"},
                                   XidMeaning{79, "the GPU has fallen off the bus"},
                                   XidMeaning{95, "uncontained memory error"},
                                   XidMeaning{119, "the GPU's system processor does not answer"},
                                   XidMeaning{120, "the GPU's system processor failed"},
                                   XidMeaning{140, "unrecovered ECC error"}};
constexpr double kDay = 86'400;

void judge_xids(Checks& checks, const GpuFacts& facts) {
  std::set<std::pair<std::string, int>> reported;
  for (const Xid& xid : facts.xids) {
    const auto meaning = std::ranges::find(kHardwareXids, xid.number, &XidMeaning::number);
    if (meaning == kHardwareXids.end() || xid.age_s > kDay || !reported.emplace(xid.bus_id, xid.number).second) continue;
    checks.push_back(warning("gpu-health",
                             "the kernel log of the last 24 hours contains Xid " + std::to_string(xid.number) +
                                 " for the GPU at " + xid.bus_id + ": " + meaning->text,
                             "reset the GPU or reboot; if the Xid returns, exclude this machine and have the GPU replaced"));
  }
}

void judge_memory_errors(Checks& checks, const Gpu& gpu, const std::string& text) {
  if (gpu.remap_failed) {
    checks.push_back(error("gpu-health", text + " could not replace a defective row of its memory",
                           "exclude this GPU (CUDA_VISIBLE_DEVICES), and have it replaced"));
  } else if (gpu.remap_pending) {
    checks.push_back(warning("gpu-health", text + " has a defective row or page of memory, which a reset replaces",
                             "reset the GPU when no job uses it: nvidia-smi --gpu-reset"));
  } else if (gpu.uncorrected_errors.value_or(0) > 0) {
    checks.push_back(warning(
        "gpu-health",
        text + " has had " + std::to_string(*gpu.uncorrected_errors) + " uncorrected memory errors since the driver was loaded",
        "reset the GPU; if the number grows again, have it replaced"));
  }
}

void judge_slowdown(Checks& checks, const Gpu& gpu, const std::string& text) {
  // nvmlClocksEventReasonHwSlowdown, HwThermalSlowdown and HwPowerBrakeSlowdown
  constexpr std::uint64_t kHardware = 0x8, kThermal = 0x40, kPowerBrake = 0x80;
  const std::uint64_t reasons = gpu.slowdown_reasons.value_or(0);
  if ((reasons & (kHardware | kThermal | kPowerBrake)) == 0) return;
  const char* why = (reasons & kThermal) != 0 ? "temperature" : (reasons & kPowerBrake) != 0 ? "power supply" : "hardware";
  checks.push_back(warning("gpu-health", text + " runs slower now because of its " + why + ": the whole job waits for it",
                           "check the fans, airflow and power supply of this machine: nvidia-smi -q -d PERFORMANCE"));
}

void judge_use_by_others(Checks& checks, const Gpu& gpu, const std::string& text) {
  if (!gpu.used_bytes || !gpu.total_bytes || *gpu.used_bytes <= *gpu.total_bytes / 10) return;
  checks.push_back(warning("gpu-memory",
                           text + " is in use: " + text_of_bytes(*gpu.used_bytes) + " of " + text_of_bytes(*gpu.total_bytes),
                           "end the other program (ddprun gpus shows it), or select other GPUs with CUDA_VISIBLE_DEVICES"));
}

// Judges the NVLinks of each GPU. A GPU with fewer active links than another GPU of the same model has lost some links.
void judge_links(Checks& checks, const GpuFacts& facts) {
  std::map<std::string, int> most;
  for (const Gpu& gpu : facts.gpus) {
    if (gpu.active_links) most[gpu.name] = std::max(most[gpu.name], *gpu.active_links);
  }
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
    const Gpu& gpu = facts.gpus[i];
    if (!gpu.active_links || *gpu.active_links == most[gpu.name]) continue;
    checks.push_back(warning("gpu-health",
                             "GPU " + std::to_string(i) + " has " + std::to_string(*gpu.active_links) +
                                 " active NVLinks, but another GPU of this model has " + std::to_string(most[gpu.name]),
                             "reboot; if the links stay inactive, have the GPU or its board checked: nvidia-smi nvlink -s"));
  }
}

void judge_health(Checks& checks, const GpuFacts& facts) {
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
    const std::string text = "GPU " + std::to_string(i);
    judge_memory_errors(checks, facts.gpus[i], text);
    judge_slowdown(checks, facts.gpus[i], text);
    judge_use_by_others(checks, facts.gpus[i], text);
  }
  judge_links(checks, facts);
  judge_xids(checks, facts);
}

std::string summary_of(const GpuFacts& facts) {
  std::string text = std::to_string(facts.usable) + " usable of " + counted_gpus(facts.gpus.size()) +
                     (facts.driver_answers ? " by the driver (NVML)" : " in /dev/nvidia*");
  if (facts.visible) text += ", CUDA_VISIBLE_DEVICES=" + *facts.visible;
  constexpr std::size_t kMaxNames = 16;
  for (std::size_t i = 0; i < std::min(facts.gpus.size(), kMaxNames); ++i) {
    if (!facts.gpus[i].name.empty()) text += (i == 0 ? ": " : ", ") + facts.gpus[i].name;
  }
  return text;
}

// Judges the driver itself, before its GPUs are judged. Returns true if a check was added.
bool judge_driver(Checks& checks, const GpuFacts& facts, const JobNeeds& needs) {
  if (facts.driver_answers) {
    const auto count = facts.gpus.size();
    if (facts.device_files <= static_cast<int>(count) || count == 0) return false;
    checks.push_back(warning("gpus",
                             "/dev has " + std::to_string(facts.device_files) + " GPUs, but the driver reports " +
                                 std::to_string(count) + ": a GPU may have failed",
                             "check the kernel log for Xid 79 (dmesg), and reboot this machine"));
    return true;
  }
  if (facts.device_files == 0) return false;
  const std::string found = counted_gpus(static_cast<std::size_t>(facts.device_files)) + " in /dev, but " +
                            (facts.has_nvml ? "the driver does not answer" : "libnvidia-ml.so.1 is not installed");
  const std::string remedy = facts.has_nvml
                                 ? "run nvidia-smi, and check the kernel log (dmesg): the driver may not be loaded, or its "
                                   "library may have another version"
                                 : "install the driver's libraries; in a container, use the NVIDIA Container Toolkit";
  checks.push_back(facts.has_nvml && needs.gpus == Gpus::kRequired ? error("gpus", found, remedy)
                                                                   : warning("gpus", found, remedy));
  return true;
}

}  // namespace

std::string problem_of_visible_list(std::string_view list, const std::vector<Gpu>& gpus) {
  if (without_spaces_around(list).empty() || without_spaces_around(list) == "-1" || list == "NoDevFiles") return "";
  std::set<std::string> seen;
  std::vector<std::string_view> entries = split(list, ',');
  for (std::string_view& entry : entries) entry = without_spaces_around(entry);
  const bool uuids = is_uuid(entries.front());
  for (const std::string_view entry : entries) {
    if (entry == "-1") return "";  // the entry -1 ends the list on purpose
    if (gpus.empty()) return quoted(entry) + " is not a GPU of this machine, which has no GPU";
    if (is_uuid(entry) != uuids) return quoted(entry) + " ends the list: numbers and UUIDs cannot be mixed";
    const std::string problem = uuids ? problem_of_uuid(entry, gpus, seen) : problem_of_index(entry, gpus.size(), seen);
    if (!problem.empty()) return problem;
  }
  return "";
}

std::vector<Xid> xids_in(std::string_view kernel_log, double uptime_s) {
  constexpr std::string_view kMark = "NVRM: Xid (";
  constexpr std::size_t kMaxXids = 256;
  std::vector<Xid> found;
  for (const std::string_view line : split(kernel_log, '\n')) {
    const std::size_t mark = line.find(kMark);
    if (mark == std::string_view::npos || found.size() == kMaxXids) continue;
    // fields: priority, sequence number, microseconds since the boot, flags
    const auto fields = split(line.substr(0, mark), ',');
    const std::string_view rest = line.substr(mark + kMark.size());
    const std::size_t end = rest.find("): ");
    if (fields.size() < 3 || end == std::string_view::npos) continue;
    const auto number = index_of(rest.substr(end + 3));
    const auto time_us = index_of(fields[2]);
    if (!number || !time_us) continue;
    std::string_view bus_id = rest.substr(0, end);
    if (bus_id.starts_with("PCI:")) bus_id.remove_prefix(4);
    found.push_back({.number = static_cast<int>(*number),
                     .bus_id = std::string(bus_id),
                     .age_s = uptime_s - static_cast<double>(*time_us) / 1e6});
  }
  return found;
}

Checks judge_gpus(const GpuFacts& facts, const JobNeeds& needs) {
  Checks checks;
  if (!judge_driver(checks, facts, needs)) checks.push_back(ok("gpus", summary_of(facts)));
  const std::size_t before = checks.size();
  judge_visible_list(checks, facts, needs);
  judge_mig(checks, facts, needs);
  if (checks.size() == before) judge_number_of_workers(checks, facts, needs);
  judge_health(checks, facts);
  return checks;
}

}  // namespace ddprun::doctor
