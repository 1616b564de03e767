#include "launcher/doctor/verdicts/judge_programs.hpp"

namespace ddprun::doctor {
namespace {

using Work = JobNeeds::Work;

// A fault of a program is an error if the job runs the program, and a warning if no job was named.
Check fault(std::string check, bool is_used, std::string found, std::string remedy) {
  return is_used ? error(std::move(check), std::move(found), std::move(remedy))
                 : warning(std::move(check), std::move(found), std::move(remedy));
}

Check judge_torch(const PythonFacts& facts, const JobNeeds& needs) {
  using Torch = PythonFacts::Torch;
  if (facts.torch == Torch::kMissing) {
    return warning("torch", "the module torch is not installed for " + facts.path,
                   "install PyTorch for this interpreter, or set PYTHON_EXEC to the interpreter that has it; ignore this "
                   "warning if the script does not use PyTorch");
  }
  if (facts.torch == Torch::kUnknown) {
    return warning("torch", "import torch is slow in " + facts.path + ": " + facts.torch_problem,
                   "copy the Python environment to a local disk: each worker start takes this time");
  }
  if (facts.torch == Torch::kBroken) {
    return error("torch", "import torch fails in " + facts.path + ": " + facts.torch_problem,
                 "repair the installation of PyTorch: run " + facts.path + " -c 'import torch' until it works");
  }
  if (facts.machine_has_gpu && facts.torch_sees_a_gpu == false && needs.gpus != JobNeeds::Gpus::kUnused) {
    return warning("torch", "this machine has a visible GPU, but torch " + facts.torch_version + " cannot use it",
                   "install a CUDA build of PyTorch that matches the driver; nvidia-smi shows the driver's version");
  }
  return ok("torch", facts.torch_version.empty() ? "installed" : facts.torch_version);
}

}  // namespace

Checks judge_trainer(const TrainerFacts& facts, const std::string& own_version, const JobNeeds& needs) {
  const bool is_used = needs.work == Work::kTrain;
  if (!is_used && needs.work != Work::kUnknown) return {};
  if (facts.path.empty()) {
    if (is_used)
      return {error("ddptrain", "not found next to ddprun or on PATH", "install it next to ddprun, or build it: ./dev build")};
    return {ok("ddptrain", "not installed: ddprun can start scripts and programs, but cannot train from a train.json")};
  }
  if (!facts.problem.empty()) {
    return {fault("ddptrain", is_used, facts.path + " does not start: " + facts.problem,
                  "install the LibTorch that it was built with; ddprun version shows which one")};
  }
  if (!facts.version.empty() && facts.version.find(own_version) == std::string::npos) {
    return {fault("ddptrain", is_used, facts.path + " is " + facts.version + ", expected version " + own_version,
                  "install ddprun and ddptrain of the same version")};
  }
  return {ok("ddptrain", facts.path + (facts.version.empty() ? "" : ": " + facts.version))};
}

Checks judge_python(const PythonFacts& facts, const JobNeeds& needs) {
  const bool is_used = needs.work == Work::kPython;
  if (!is_used && needs.work != Work::kUnknown) return {};
  if (facts.path.empty()) {
    if (is_used) return {error("python", "no Python interpreter was found", "install python3, or set PYTHON_EXEC")};
    return {ok("python", "not installed: ddprun can train from a train.json and start programs, but no Python scripts")};
  }
  if (!facts.problem.empty()) {
    return {fault("python", is_used, facts.path + " does not start: " + facts.problem,
                  "repair this interpreter, or set PYTHON_EXEC to another one")};
  }
  Checks checks{ok("python", facts.path + (facts.version.empty() ? "" : ": " + facts.version))};
  const bool is_known = facts.torch != PythonFacts::Torch::kUnknown || !facts.torch_problem.empty();
  if (is_used && is_known) checks.push_back(judge_torch(facts, needs));
  return checks;
}

}  // namespace ddprun::doctor
