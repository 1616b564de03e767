// Reads the facts about programs. For the quick facts, the code only searches for files and starts Python once. For the full
// facts, it also starts ddptrain and imports torch, which takes seconds.
#pragma once

#include <filesystem>

#include "launcher/doctor/verdicts/judge_programs.hpp"

namespace ddprun::doctor {

enum class Depth { kQuick, kFull };

TrainerFacts observe_trainer(Depth depth);

// `python`: the interpreter of the job, or empty to search PATH.
PythonFacts observe_python(const std::filesystem::path& python, Depth depth, const JobNeeds& needs);

}  // namespace ddprun::doctor
