#include "launcher/submit/slurm/slurm_commands.hpp"

#include <cstring>
#include <filesystem>

#include "common/base/error.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/machine/program_output.hpp"
#include "launcher/submit/slurm/slurm_job.hpp"

namespace ddprun {
namespace {

std::string problem_of(const std::string& name, const ProgramOutput& output) {
  const std::string line = first_error_line(output.error_output.empty() ? output.text : output.error_output);
  switch (output.end) {
    case ProgramOutput::End::kExited:
      return name + " failed: " + (line.empty() ? "exit code " + std::to_string(output.number) : line);
    case ProgramOutput::End::kSignalled:
      return name + " was ended by signal " + std::to_string(output.number);
    case ProgramOutput::End::kTimedOut:
      return name + " did not end within two minutes";
    case ProgramOutput::End::kOutputTooLarge:
      return name + " printed more than 1 MiB";
    case ProgramOutput::End::kNotStarted:
      break;
  }
  return name + " could not be started: " + std::strerror(output.number);
}

}  // namespace

SlurmAnswer run_slurm(const std::vector<std::string>& command) {
  const std::string& name = command.front();
  const auto path = find_on_path(name);
  if (!path)
    return {.succeeded = false,
            .text = "",
            .problem = name + " was not found on PATH: run this command on a machine with the Slurm commands"};
  std::vector<std::string> words = command;
  words.front() = path->string();
  const ProgramOutput output = output_of(words, {.time = std::chrono::minutes(2)});
  if (output.end == ProgramOutput::End::kExited && output.number == 0) return {true, output.text, ""};
  return {false, output.text, problem_of(name, output)};
}

std::string path_of_this_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw InternalError("the path of this program is unknown: /proc/self/exe: " + error.message());
  return path.string();
}

}  // namespace ddprun
