#include "launcher/custom_worker/custom_worker.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/base/signal_name.hpp"
#include "common/channel/message.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_worker(const NamedWorker& named, const std::string& expected) {
  throw UsageError("worker '" + printable(named.name) + "' (" + named.source + "): expected " + expected);
}

fs::path program_of(const NamedWorker& named, const Machine& machine, const fs::path& cwd) {
  if (named.name.find('/') == std::string::npos) {
    if (const auto found = machine.on_path(named.name)) return *found;
    refuse_worker(named,
                  "the path of a program, or its name on PATH; for a file in this folder use ./" + printable(named.name));
  }
  fs::path file = (cwd / named.name).lexically_normal();
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) refuse_worker(named, "the path of an existing program");
  if (::access(file.c_str(), X_OK) != 0) refuse_worker(named, "an executable program; make it executable with chmod +x");
  return file;
}

// Returns the last non-blank line, cut to a maximum length.
std::string last_output(std::string_view text) {
  constexpr std::size_t kShown = 200;
  const auto is_blank = [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  const std::size_t line = text.rfind('\n');
  if (line != std::string_view::npos) text.remove_prefix(line + 1);
  return printable(text.substr(0, kShown));
}

// Describes why the program failed. The text is empty if it succeeded.
std::string problem_of(const ProgramOutput& output) {
  switch (output.end) {
    case ProgramOutput::End::kNotStarted:
      return std::string("it cannot be started: ") + std::strerror(output.number);
    case ProgramOutput::End::kTimedOut:
      return "it was still running after " + std::to_string(OutputLimits{}.time.count() / 1000) + " s";
    case ProgramOutput::End::kOutputTooLarge:
      return "it printed more than " + std::to_string(OutputLimits{}.bytes >> 20) + " MiB";
    case ProgramOutput::End::kSignalled:
      return "it was ended by " + signal_name(output.number);
    case ProgramOutput::End::kExited:
      break;
  }
  if (output.number != 0) return "it ended with exit code " + std::to_string(output.number);
  return "";
}

WorkerDescription query_description(const NamedWorker& named, const fs::path& program, const Machine& machine) {
  const ProgramOutput output = machine.output_of_program({program.string(), "--describe"});
  std::string problem = problem_of(output);
  if (const std::string error_text = last_output(output.error_output); !problem.empty() && !error_text.empty())
    problem += " and printed: " + error_text;
  try {
    if (problem.empty()) return parse_description(output.text);
  } catch (const UsageError& error) {
    problem = error.what();
  }
  throw UsageError("worker '" + printable(named.name) + "' (" + named.source + "): the command " + printable(program.string()) +
                   " --describe failed: " + problem +
                   ". A worker program must be built with ddprun's library; see docs/own-worker.md");
}

}  // namespace

std::optional<CustomWorker> find_custom_worker(const std::optional<NamedWorker>& by_option, const std::string& by_config,
                                               const Machine& machine, const fs::path& cwd) {
  if (!by_option && by_config.empty()) return std::nullopt;
  const NamedWorker named = by_option.value_or(NamedWorker{by_config, "\"worker\" of the config"});
  CustomWorker worker{.program = program_of(named, machine, cwd), .source = named.source, .description = {}};
  worker.description = query_description(named, worker.program, machine);
  if (worker.description.channel_major != channel::kProtocolMajor) {
    refuse_worker(named, "a program with version " + std::to_string(channel::kProtocolMajor) +
                             " of the worker channel, found " + std::to_string(worker.description.channel_major) +
                             " (it was built with ddprun " + printable(worker.description.ddprun) +
                             "); build it again with this version of ddprun");
  }
  return worker;
}

}  // namespace ddprun
