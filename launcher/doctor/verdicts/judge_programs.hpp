// Checks the programs of a job: ddptrain, Python, and the Python package torch. Without this check, an incompatible version
// would make every worker fail. The code is pure: no I/O, no clock.
#pragma once

#include <optional>
#include <string>

#include "launcher/doctor/verdicts/check.hpp"
#include "launcher/doctor/verdicts/job_needs.hpp"

namespace ddprun::doctor {

struct TrainerFacts {
  std::string path{};     // empty if ddptrain was not found
  std::string version{};  // first line of the output of --version; empty if the program was not run
  std::string problem{};  // why the program does not start; empty if it starts or was not run
};

struct PythonFacts {
  enum class Torch { kUnknown, kMissing, kFound, kBroken };
  std::string path{};  // empty if Python was not found
  std::string version{};
  std::string problem{};  // why the interpreter does not start
  Torch torch = Torch::kUnknown;
  std::string torch_version{};             // empty if unknown
  std::string torch_problem{};             // the last line of the failed import; with kUnknown: why it was not finished
  std::optional<bool> torch_sees_a_gpu{};  // nullopt if torch was not imported
  bool machine_has_gpu = false;            // a GPU is visible to this process
};

// `own_version`: the version of this ddprun.
Checks judge_trainer(const TrainerFacts& facts, const std::string& own_version, const JobNeeds& needs);
Checks judge_python(const PythonFacts& facts, const JobNeeds& needs);

}  // namespace ddprun::doctor
