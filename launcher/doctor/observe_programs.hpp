// Reads the facts about programs. The quick facts only search for files and start Python once. The full facts start ddptrain
// and import torch, which takes seconds.
#pragma once

#include <filesystem>

#include "launcher/doctor/verdicts/judge_programs.hpp"

namespace ddprun::doctor {

enum class Depth { kQuick, kFull };

TrainerFacts observe_trainer(Depth depth);

// `python`: the interpreter of the job, or empty to search PATH.
PythonFacts observe_python(const std::filesystem::path& python, Depth depth, const JobNeeds& needs);

}  // namespace ddprun::doctor
