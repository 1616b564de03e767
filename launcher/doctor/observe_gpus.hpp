// Reads the facts about GPUs from NVML, /dev and the kernel log. NVML may hang in a broken driver, so these functions are
// called in a probe (a child process).
#pragma once

#include "launcher/doctor/verdicts/judge_gpus.hpp"

namespace ddprun::doctor {

GpuFacts observe_gpus();

}  // namespace ddprun::doctor
