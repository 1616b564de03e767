// Implementation of plan.hpp. make_plan() resolves the options by subject: program, number of workers, restarts, directories,
// output, network, recovery, placement. The order matters, since later choices depend on earlier ones. Each choice is a
// function in this file or, if it is longer, in a plan_*.cpp file.
#include "launcher/plan/plan.hpp"

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/plan/plan_network.hpp"
#include "launcher/plan/plan_output.hpp"
#include "launcher/plan/plan_placement.hpp"
#include "launcher/plan/plan_program.hpp"
#include "launcher/plan/plan_restarts.hpp"
#include "launcher/plan/plan_trainer.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

void choose_program(Plan& plan, const Arguments& arguments, const Machine& machine, const Environment& environment,
                    const fs::path& cwd) {
  const Settings& settings = arguments.settings;
  const std::vector<std::string>& words = arguments.positional;
  plan.kind = kind_of(arguments, cwd);
  if (!plan.trains()) {
    plan.command = command_of(plan.kind, arguments, machine, environment, cwd);
    plan.title = plan.kind == Plan::Kind::kModule ? words.front() : fs::path(words.front()).filename().string();
    plan.record("program", words.front(),
                plan.kind == Plan::Kind::kModule   ? "Python module"
                : plan.kind == Plan::Kind::kPython ? "Python script"
                                                   : "program");
    return;
  }
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    if (word->starts_with("-")) {
      throw UsageError("'" + *word + "' comes after " + words.front() +
                       ": expected options before it and key.path=value after it");
    }
  }
  plan.config = load_config(absolute_in(cwd, words.front()), {words.begin() + 1, words.end()}, &plan.warnings,
                            [&](const std::string& by_config) {
                              choose_custom_worker(plan, settings, by_config, machine, cwd);
                              return plan.worker ? TaskConfig(plan.worker->description.keys) : TaskConfig();
                            });
  plan.title = plan.config->name;
  plan.record("config", words.front(), words.size() > 1 ? "first argument, with overrides" : "first argument");
}

void choose_console(Plan& plan, const Settings& settings) {
  plan.json = settings.flag("json");
  plan.dry_run = settings.flag("dry-run");
  plan.preflight = settings.flag("preflight");
  if (plan.preflight) plan.record("preflight", *settings.find("preflight"));
  if (settings.flag("quiet")) {
    plan.verbosity = -1;
  } else if (settings.find("verbose") != nullptr) {
    plan.verbosity = static_cast<int>(std::min<std::int64_t>(2, settings.integer("verbose", 0, 100)));
  }
}

// Warns that --logs-specs has no effect, unless its value is torchrun's default. In torchrun it names a Python class that
// decides where logs are written, and ddprun has no such classes.
void warn_of_log_class(Plan& plan, const Setting& setting) {
  if (setting.value == "default" || setting.value == "DefaultLogsSpecs") return;
  plan.warnings.push_back("--logs-specs " + setting.value + " (" + setting.source +
                          ") has no effect: it names a Python class of torchrun; logs are written where torchrun writes "
                          "them by default (--log-dir, --redirects, --tee)");
}

void note_options_without_effect(Plan& plan, const Settings& settings) {
  for (const OptionSpec& option : option_table()) {
    if (option.group != OptionGroup::kNoEffect || !settings.given(option.name)) continue;
    if (option.name == "logs-specs") {
      warn_of_log_class(plan, *settings.find("logs-specs"));
      continue;
    }
    plan.notes.push_back("--" + std::string(option.name) + " has no effect here: " + std::string(option.doc));
  }
}

}  // namespace

void Plan::record(std::string name, std::string value, std::string source) {
  sources.push_back({std::move(name), std::move(value), std::move(source)});
}

void Plan::record(std::string_view option, const Setting& setting) {
  std::string name(option);
  std::replace(name.begin(), name.end(), '-', '_');
  record(std::move(name), setting.value, setting.source);
}

Plan make_plan(const Arguments& arguments, const Machine& machine, const Environment& environment, const fs::path& cwd) {
  if (arguments.positional.empty() || arguments.positional.front().empty()) throw UsageError(kNothingToRun);
  const Settings& settings = arguments.settings;
  Plan plan;
  plan.as_torchrun = arguments.called_as == CalledAs::kTorchrun;
  plan.warnings = arguments.warnings;
  choose_program(plan, arguments, machine, environment, cwd);
  choose_workers(plan, settings, machine, environment);
  choose_input(plan, machine);
  choose_restarts(plan, settings, cwd);
  choose_stopping(plan, settings);
  choose_folders(plan, settings, cwd);
  choose_output(plan, settings);
  choose_network(plan, settings, machine, environment, cwd);
  choose_store(plan, settings, environment);
  if (plan.trains()) {
    require_resume_path(plan, settings);
    const bool gpu_each = plan.worker_per_gpu || (plan.device == "cuda" && plan.nproc_per_node <= machine.gpus());
    choose_recovery(plan, settings, gpu_each);
  } else {
    choose_recovery_of_program(plan, settings);
  }
  choose_placement(plan, settings);
  plan.trains() ? choose_standbys(plan, settings) : choose_spares(plan, settings, machine);
  choose_console(plan, settings);
  choose_worker(plan, settings, machine);
  note_options_without_effect(plan, settings);
  place_workers(plan, machine, environment);
  return plan;
}

const char* name_of(Plan::Kind kind) {
  switch (kind) {
    case Plan::Kind::kTrain:
      return "train";
    case Plan::Kind::kPython:
      return "python";
    case Plan::Kind::kModule:
      return "module";
    case Plan::Kind::kProgram:
      return "program";
  }
  return "unknown";
}

RestartLimits restart_limits(const Plan& plan) {
  return {.max_restarts = plan.max_restarts,
          .refill_by_progress = plan.refill_by_progress,
          .rules = plan.restart_rules,
          .preempted_has_saved = plan.trains()};
}

}  // namespace ddprun
