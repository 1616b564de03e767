// Implementation of own_worker.hpp.
#include "launcher/own_worker/own_worker.hpp"

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
    refuse_worker(named, "a program's path, or a name that is on PATH; a file in this folder is ./" + printable(named.name));
  }
  fs::path file = (cwd / named.name).lexically_normal();
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) refuse_worker(named, "the path of a program that is there");
  if (::access(file.c_str(), X_OK) != 0) refuse_worker(named, "a program that may be executed; chmod +x makes it so");
  return file;
}

// The last non-blank line, cut to a maximum length.
std::string last_words(std::string_view text) {
  constexpr std::size_t kShown = 200;
  const auto is_blank = [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  const std::size_t line = text.rfind('\n');
  if (line != std::string_view::npos) text.remove_prefix(line + 1);
  return printable(text.substr(0, kShown));
}

// Describes the failure; empty if the program succeeded.
std::string trouble_of(const ProgramOutput& output) {
  switch (output.end) {
    case ProgramOutput::End::kNotStarted:
      return std::string("it can't be started: ") + std::strerror(output.number);
    case ProgramOutput::End::kTooLate:
      return "it had not ended after " + std::to_string(OutputLimits{}.time.count() / 1000) + " s";
    case ProgramOutput::End::kTooMuch:
      return "it printed more than " + std::to_string(OutputLimits{}.bytes >> 20) + " MiB";
    case ProgramOutput::End::kSignalled:
      return "it died of " + signal_name(output.number);
    case ProgramOutput::End::kExited:
      break;
  }
  if (output.number != 0) return "it ended with exit code " + std::to_string(output.number);
  return "";
}

WorkerDescription asked(const NamedWorker& named, const fs::path& program, const Machine& machine) {
  const ProgramOutput output = machine.printed_by({program.string(), "--describe"});
  std::string trouble = trouble_of(output);
  if (const std::string said = last_words(output.complaints); !trouble.empty() && !said.empty())
    trouble += " and said: " + said;
  try {
    if (trouble.empty()) return parse_description(output.text);
  } catch (const UsageError& error) {
    trouble = error.what();
  }
  throw UsageError("worker '" + printable(named.name) + "' (" + named.source + ") can't describe itself: of " +
                   printable(program.string()) + " --describe, " + trouble +
                   ". A worker program is built with ddprun's library: docs/own-worker.md");
}

}  // namespace

std::optional<OwnWorker> find_own_worker(const std::optional<NamedWorker>& by_option, const std::string& by_config,
                                         const Machine& machine, const fs::path& cwd) {
  if (!by_option && by_config.empty()) return std::nullopt;
  const NamedWorker named = by_option.value_or(NamedWorker{by_config, "\"worker\" of the config"});
  OwnWorker worker{.program = program_of(named, machine, cwd), .source = named.source, .description = {}};
  worker.description = asked(named, worker.program, machine);
  if (worker.description.channel_major != channel::kProtocolMajor) {
    refuse_worker(named, "a program that speaks version " + std::to_string(channel::kProtocolMajor) +
                             " of the worker channel, found " + std::to_string(worker.description.channel_major) +
                             " (it was built with ddprun " + printable(worker.description.ddprun) +
                             "); build it with the ddprun that starts it");
  }
  return worker;
}

}  // namespace ddprun
