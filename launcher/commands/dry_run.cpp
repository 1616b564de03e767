// Implementation of dry_run.hpp: formats the plan as text or as JSON.
#include "launcher/commands/dry_run.hpp"

#include <nlohmann/json.hpp>

#include "launcher/options/shell_quoted.hpp"
#include "launcher/plan/argument_template.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {
namespace {

// Returns the command of rank 0. The arguments of a script are a template (as in torchrun), which is filled in for rank 0.
std::vector<std::string> command_of_rank_0(const Plan& plan) {
  return plan.kind == Plan::Kind::kTrain ? plan.command : fill_arguments(plan.command, 0);
}

}  // namespace

VariableList environment_of_rank_0(const Plan& plan, const std::vector<std::string>& inherited) {
  const NodeShare here{.role = plan.role, .local_world_size = plan.nproc_per_node};
  const bool train = plan.kind == Plan::Kind::kTrain;
  const std::vector<std::string> variables = worker_environment(
      inherited, {.ranks = assign_ranks(std::span(&here, 1)).front(),
                  .master_addr = plan.master_addr,
                  .master_port = plan.master_port,
                  .max_restarts = plan.max_restarts,
                  .run_id = plan.run_id,
                  .error_file = "(in the logs)",
                  .channel = train ? ChannelUse::kGiven : ChannelUse::kOffered,
                  .only_device = plan.places.empty() ? std::vector<WorkerPlace::Variable>() : plan.places.front().only_device,
                  .signals_to_handle = plan.signals_to_handle,
                  .chaos = plan.chaos,
                  .interface = plan.interface});
  VariableList own;
  for (const std::string& variable : variables) {
    if (std::find(inherited.begin(), inherited.end(), variable) != inherited.end()) continue;
    const std::size_t equals = variable.find('=');
    own.emplace_back(variable.substr(0, equals), equals == std::string::npos ? "" : variable.substr(equals + 1));
    if (plan.master_port == 0 && own.back().first == "MASTER_PORT") own.back().second = "(a free port)";
  }
  return own;
}

std::string dry_run_text(const Plan& plan, const VariableList& environment) {
  std::string text = "Nothing is started (--dry-run). ddprun would start " + std::to_string(plan.nproc_per_node) +
                     (plan.nproc_per_node == 1 ? " worker" : " workers");
  if (plan.standbys > 0) {
    text += ", plus " + std::to_string(plan.standbys) + (plan.standbys == 1 ? " standby" : " standbys") +
            " (--standby) after training has started";
  }
  text += ":\n\n ";
  const std::vector<std::string> command = command_of_rank_0(plan);
  for (const std::string& argument : command) text += " " + shell_quoted(argument);
  text += "\n\nEnvironment variables of rank 0, in addition to those of this shell:\n";
  for (const auto& [name, value] : environment) text += "  " + name + "=" + shell_quoted(value) + "\n";
  text += "\nValues and their sources:\n";
  std::size_t name_width = 0, value_width = 0;
  for (const ValueSource& source : plan.sources) {
    name_width = std::max(name_width, source.name.size());
    value_width = std::max(value_width, std::min<std::size_t>(source.value.size(), 48));
  }
  for (const ValueSource& source : plan.sources) {
    std::string line = "  " + source.name;
    line.resize(name_width + 4, ' ');
    line += source.value;
    line.resize(std::max(line.size(), name_width + 4 + value_width), ' ');
    text += line + "  (" + source.source + ")\n";
  }
  for (const std::string& warning : plan.warnings) text += "warning: " + warning + "\n";
  for (const std::string& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

std::string dry_run_json(const Plan& plan, const VariableList& environment) {
  using Json = nlohmann::ordered_json;
  Json document{{"event", "plan"}, {"kind", name_of(plan.kind)}, {"title", plan.title}, {"command", command_of_rank_0(plan)}};
  document["environment"] = Json::object();
  for (const auto& [name, value] : environment) document["environment"][name] = value;
  document["values"] = Json::object();
  for (const ValueSource& source : plan.sources)
    document["values"][source.name] = Json{{"value", source.value}, {"source", source.source}};
  document["warnings"] = plan.warnings;
  document["notes"] = plan.notes;
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ddprun
