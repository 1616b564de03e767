// Reads the facts about GPUs from NVML, /dev and the kernel log. NVML may hang in a broken driver, so a probe calls this.
#pragma once

#include "launcher/doctor/verdicts/judge_gpus.hpp"

namespace ddprun::doctor {

GpuFacts observe_gpus();

}  // namespace ddprun::doctor
