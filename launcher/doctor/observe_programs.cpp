#include "launcher/doctor/observe_programs.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/signal_name.hpp"
#include "common/base/split.hpp"
#include "launcher/machine/detect.hpp"

namespace ddprun::doctor {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxBytes = 64U << 10;
constexpr milliseconds kSearchLimit{2'000};
constexpr milliseconds kImportLimit{60'000};

// Searches for torch without importing it. Its version is in a file of the package.
constexpr const char* kFindTorch =
    "import os, sys, importlib.util as u; print(sys.version.split()[0]); s = u.find_spec('torch'); print(int(s is not None))\n"
    "try: print(open(os.path.join(os.path.dirname(s.origin), 'version.py')).read().split('__version__ = "
    "')[1].split(\"'\")[1])\n"
    "except Exception: pass";
constexpr const char* kImportTorch =
    "import sys, importlib.util as u; print(sys.version.split()[0])\n"
    "if u.find_spec('torch') is None: print(0); sys.exit()\n"
    "import torch; print(1); print(torch.__version__); print(int(torch.cuda.is_available()))";

std::string last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  const std::size_t at = text.rfind('\n');
  return std::string(at == std::string_view::npos ? text : text.substr(at + 1));
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// Describes why the program did not end with exit code 0. The text is empty if it did.
std::string problem_of(const ProgramOutput& output, milliseconds limit) {
  using End = ProgramOutput::End;
  switch (output.end) {
    case End::kExited:
      if (output.number == 0) return "";
      return output.error_output.empty() ? "exit code " + std::to_string(output.number) : last_line(output.error_output);
    case End::kSignalled:
      return "it was ended by " + signal_name(output.number);
    case End::kTimedOut:
      return "it did not end in " + std::to_string(limit.count() / 1000) + " s";
    case End::kOutputTooLarge:
      return "it printed too much";
    case End::kNotStarted:
      return "it cannot be executed";
  }
  return "unknown";
}

bool any_gpu_is_visible() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto visible = value == nullptr ? std::nullopt : std::optional<std::string>(value);
  return !visible_gpus(gpus_by_device_nodes(), visible).empty();
}

}  // namespace

TrainerFacts observe_trainer(Depth depth) {
  const Machine machine = this_machine();
  auto program = machine.next_to_self("ddptrain");
  if (!program) program = machine.on_path("ddptrain");
  TrainerFacts facts;
  if (!program) return facts;
  facts.path = program->string();
  if (depth == Depth::kQuick) return facts;
  const ProgramOutput output = output_of({facts.path, "--version"}, {.time = kImportLimit, .bytes = kMaxBytes});
  facts.problem = problem_of(output, kImportLimit);
  facts.version = first_line(output.text);
  return facts;
}

PythonFacts observe_python(const std::filesystem::path& python, Depth depth, const JobNeeds& needs) {
  using Torch = PythonFacts::Torch;
  PythonFacts facts{.path = python.string()};
  if (facts.path.empty()) facts.path = find_on_path("python3").value_or("").string();
  if (facts.path.empty() || needs.work != JobNeeds::Work::kPython) return facts;
  const bool imports = depth == Depth::kFull;
  const milliseconds limit = imports ? kImportLimit : kSearchLimit;
  const ProgramOutput output =
      output_of({facts.path, "-c", imports ? kImportTorch : kFindTorch}, {.time = limit, .bytes = kMaxBytes});
  const std::string problem = problem_of(output, limit);
  // lines: version of Python, whether torch exists, version of torch, whether torch detects a GPU
  const auto lines = split(output.text, '\n');
  const auto line = [&](std::size_t i) { return i < lines.size() ? std::string(lines[i]) : std::string(); };
  facts.version = line(0);
  if (facts.version.empty()) {
    // A slow interpreter is not an error, since the job itself has no such time limit.
    if (output.end != ProgramOutput::End::kTimedOut) facts.problem = problem.empty() ? "it printed nothing" : problem;
    return facts;
  }
  if (!problem.empty()) {
    facts.torch = output.end == ProgramOutput::End::kTimedOut ? Torch::kUnknown : Torch::kBroken;
    facts.torch_problem = problem;
    return facts;
  }
  facts.torch = line(1) == "1" ? Torch::kFound : Torch::kMissing;
  if (facts.torch == Torch::kMissing) return facts;
  facts.torch_version = line(2);
  if (!imports) return facts;
  facts.torch_sees_a_gpu = line(3) == "1";
  facts.machine_has_gpu = any_gpu_is_visible();
  return facts;
}

}  // namespace ddprun::doctor
