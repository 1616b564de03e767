// Tests the verdicts on GPUs. Each row has one planted defect: a list that selects a GPU which does not exist, or a fault that
// the hardware reports.
#include "launcher/doctor/verdicts/judge_gpus.hpp"

#include <gtest/gtest.h>

#include "tests/launcher/doctor/verdicts/planted.hpp"

namespace ddprun::doctor::test {
namespace {

const JobNeeds kOnGpus{.work = Work::kTrain, .gpus = Gpus::kRequired, .workers = 2};
const JobNeeds kOnCpus{.work = Work::kTrain, .gpus = Gpus::kUnused, .workers = 8};

Gpu gpu(const std::string& uuid) {
  return {.uuid = uuid,
          .name = "H100",
          .uncorrected_errors = 0,
          .slowdown_reasons = 1,
          .active_links = 18,
          .used_bytes = 1ULL << 29,
          .total_bytes = 80ULL << 30};
}

// Returns the facts about a machine with two GPUs. `visible` is the value of CUDA_VISIBLE_DEVICES.
GpuFacts two(const std::optional<std::string>& visible = std::nullopt, int usable = 2) {
  return {.has_nvml = true,
          .driver_answers = true,
          .device_files = 2,
          .gpus = {gpu("GPU-11aa"), gpu("GPU-11bb")},
          .visible = visible,
          .usable = usable};
}

TEST(DoctorGpus, FindsInvalidDeviceOrdinals) {
  const auto listed = [](const std::string& visible, int usable) { return judge_gpus(two(visible, usable), kScript); };
  const GpuFacts none{.visible = "0"};
  const GpuFacts sliced = with(two(), [](GpuFacts& f) { f.gpus[1].has_mig = true, f.gpus[1].slices = {"MIG-1", "MIG-2"}; });
  expect_found({
      {"out of range", listed("0,9", 1), kError, "visible-devices",
       "'9' is not a GPU of this machine, which has 2 GPUs, 0 to 1", "nvidia-smi -L"},
      {"twice", listed("1,1", 0), kError, "visible-devices", "named twice, which hides all GPUs", "CUDA_VISIBLE_DEVICES"},
      {"twice as UUID", listed("GPU-11aa,GPU-11aa", 0), kError, "visible-devices", "named twice", "CUDA_VISIBLE_DEVICES"},
      {"unknown UUID", listed("GPU-99", 0), kError, "visible-devices", "'GPU-99' is not a UUID of this machine's GPUs", "-L"},
      {"ambiguous UUID", listed("GPU-11", 0), kError, "visible-devices", "prefix of 2 UUIDs", "nvidia-smi -L"},
      {"unknown slice", listed("MIG-77", 0), kError, "visible-devices", "MIG slices", "nvidia-smi -L"},
      {"mixed", listed("0,GPU-11bb", 1), kError, "visible-devices", "cannot be mixed", "nvidia-smi -L"},
      {"a name", listed("all", 0), kError, "visible-devices", "neither a number nor a UUID", "nvidia-smi -L"},
      {"no GPU at all, required", judge_gpus(none, with(kOnGpus, [](auto& n) { n.workers = 1; })), kError, "visible-devices",
       "has no GPU", "nvidia-smi"},
      {"no GPU at all", judge_gpus(none, kScript), kWarning, "visible-devices", "'0'", "CUDA_VISIBLE_DEVICES"},
      {"more workers than GPUs", judge_gpus(two("1", 1), kScript), kError, "visible-devices",
       "2 workers on 1 GPU that is visible", "--nproc-per-node"},
      {"the same for a train.json", judge_gpus(two(), with(kOnGpus, [](auto& n) { n.workers = 3; })), kError, "visible-devices",
       "3 workers on 2 GPUs that are visible", "fewer workers"},
      {"the same with device auto", judge_gpus(two(), {.work = Work::kTrain, .workers = 3}), kError, "visible-devices",
       "3 workers on 2 GPUs", "device=cpu"},
      {"MIG without slices", judge_gpus(with(two(), [](auto& f) { f.gpus[0].has_mig = true; }), kScript), kError,
       "visible-devices", "has no MIG slice", "nvidia-smi mig"},
      {"MIG without a list", judge_gpus(sliced, kScript), kError, "visible-devices", "only the first slice",
       "--virtual-local-rank"},
  });
}

TEST(DoctorGpus, FindsFaultsOfTheHardware) {
  const auto judged = [](auto change) { return judge_gpus(with(two(), change), kOnGpus); };
  const auto driver = [](bool nvml, const JobNeeds& needs) {
    return judge_gpus({.has_nvml = nvml, .device_files = 2, .gpus = {{}, {}}, .usable = 2}, needs);
  };
  expect_found({
      {"driver does not answer", driver(true, kOnGpus), kError, "gpus", "does not answer", "nvidia-smi"},
      {"the same for a script", driver(true, kScript), kWarning, "gpus", "does not answer", "nvidia-smi"},
      {"no NVML", driver(false, kOnGpus), kWarning, "gpus", "libnvidia-ml.so.1", "Toolkit"},
      {"a GPU is lost", judged([](auto& f) { f.device_files = 3; }), kWarning, "gpus", "driver reports 2", "Xid 79"},
      {"ECC", judged([](auto& f) { f.gpus[1].uncorrected_errors = 4; }), kWarning, "gpu-health", "GPU 1 has had 4 uncorrected",
       "reset"},
      {"row to remap", judged([](auto& f) { f.gpus[0].remap_pending = true, f.gpus[0].uncorrected_errors = 1; }), kWarning,
       "gpu-health", "GPU 0", "--gpu-reset"},
      {"remap failed", judged([](auto& f) { f.gpus[0].remap_failed = true; }), kError, "gpu-health", "could not replace",
       "have it replaced"},
      {"hot", judged([](auto& f) { f.gpus[0].slowdown_reasons = 0x48; }), kWarning, "gpu-health", "temperature", "fans"},
      {"power brake", judged([](auto& f) { f.gpus[0].slowdown_reasons = 0x80; }), kWarning, "gpu-health", "power supply",
       "PERFORMANCE"},
      {"lost NVLink", judged([](auto& f) { f.gpus[1].active_links = 17; }), kWarning, "gpu-health", "17 active NVLinks",
       "nvlink -s"},
      {"used by another job", judged([](auto& f) { f.gpus[1].used_bytes = 40ULL << 30; }), kWarning, "gpu-memory",
       "GPU 1 is in use: 40 GiB of 80 GiB", "ddprun gpus"},
      {"fallen off the bus", judged([](auto& f) {
         f.xids = {{79, "0000:65:00", 60}, {79, "0000:65:00", 50}};
       }),
       kWarning, "gpu-health", "Xid 79 for the GPU at 0000:65:00", "reset"},
  });
}

TEST(DoctorGpus, AcceptsHealthyMachines) {
  expect_healthy("no GPU", judge_gpus({}, kNoJob));
  expect_healthy("no GPU, script", judge_gpus({}, kScript));
  expect_healthy("no GPU, script with many workers", judge_gpus({}, {.work = Work::kPython, .workers = 64}));
  expect_healthy("no GPU, device auto", judge_gpus({}, {.work = Work::kTrain, .workers = 8}));
  expect_healthy("NVML without a GPU", judge_gpus({.has_nvml = true}, kScript));
  expect_healthy("hidden", judge_gpus(two("", 0), kScript));
  expect_healthy("hidden by Slurm", judge_gpus(two("NoDevFiles", 0), kScript));
  expect_healthy("two GPUs", judge_gpus(two(), kOnGpus));
  expect_healthy("shared on purpose", judge_gpus(two(), {.work = Work::kTrain, .share_gpus = true, .workers = 3}));
  expect_healthy("a program that may use CPUs", judge_gpus(two(), {.work = Work::kProgram, .workers = 3}));
  expect_healthy("in another order", judge_gpus(two(" 1 , 0 "), kOnGpus));
  expect_healthy("abbreviated UUIDs", judge_gpus(two("GPU-11b,GPU-11a"), kOnGpus));
  expect_healthy("ends on purpose", judge_gpus(two("0,-1,7", 1), with(kOnGpus, [](auto& n) { n.workers = 1; })));
  expect_healthy("CPUs only, with a wrong list", judge_gpus(two("7", 0), kOnCpus));
  expect_healthy("UUIDs in a container without NVML",
                 judge_gpus({.gpus = {{}, {}}, .visible = "GPU-1,GPU-2", .usable = 2}, kOnGpus));
  expect_healthy("an Xid of a program, and an old one",
                 judge_gpus(with(two(),
                                 [](auto& f) {
                                   f.xids = {{31, "0000:65:00", 60}, {79, "0000:65:00", 1e6}};
                                 }),
                            kOnGpus));
  expect_healthy("no NVLink in a virtual machine", judge_gpus(with(two(),
                                                                   [](auto& f) {
                                                                     for (Gpu& one : f.gpus) one.active_links = 0;
                                                                   }),
                                                              kOnGpus));
  expect_healthy("values that NVML does not report",
                 judge_gpus({.has_nvml = true, .driver_answers = true, .gpus = {{.uuid = "GPU-1"}}, .usable = 1},
                            with(kOnGpus, [](auto& n) { n.workers = 1; })));
}

TEST(DoctorGpus, ReadsXidsFromTheKernelLog) {
  const auto xids = xids_in(
      "6,339,5140900,-;NET: Registered protocol family 10\n"
      "3,1201,250000000,-;NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
      " SUBSYSTEM=pci\n"
      "3,1202,-;NVRM: Xid (PCI:0000:66:00): 13\n"
      "3,1203,260000000,-;NVRM: Xid (PCI:0000:66:00): none\n"
      "3,1204,260000000,-;NVRM: Xid (PCI",
      300);
  ASSERT_EQ(xids.size(), 1u);
  EXPECT_EQ(xids[0].number, 79);
  EXPECT_EQ(xids[0].bus_id, "0000:65:00");
  EXPECT_DOUBLE_EQ(xids[0].age_s, 50);
}

}  // namespace
}  // namespace ddprun::doctor::test
