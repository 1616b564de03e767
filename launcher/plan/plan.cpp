// Implementation of plan.hpp. Planner::make() calls all choices in order: which program, how many workers, how many restarts,
// and where. Each choice is a function here, or in the plan_*.cpp of its subject if it is longer.
#include "launcher/plan/plan.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/base/error.hpp"
#include "common/base/fault.hpp"
#include "common/base/nearest.hpp"
#include "common/base/signal_name.hpp"
#include "common/config/parse_config.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/parse_number.hpp"
#include "launcher/plan/plan_hang.hpp"
#include "launcher/plan/plan_input.hpp"
#include "launcher/plan/plan_network.hpp"
#include "launcher/plan/plan_output.hpp"
#include "launcher/plan/plan_placement.hpp"
#include "launcher/plan/plan_program.hpp"
#include "launcher/plan/plan_trainer.hpp"
#include "launcher/plan/restart_policy_file.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultRestarts = 3;

// Output options without effect for a train.json, whose worker output goes to the run directory.
constexpr std::array<std::string_view, 7> kOnlyForScripts{"redirects",
                                                          "tee",
                                                          "no-pty",
                                                          "local-ranks-filter",
                                                          "duplicate-stdout-filters",
                                                          "duplicate-stderr-filters",
                                                          "log-line-prefix-template"};

fs::path absolute_in(const fs::path& cwd, const fs::path& file) {
  fs::path path = (file.is_absolute() ? file : cwd / file).lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // for "runs/a/" the result is "runs/a"
}

class Planner {
 public:
  Planner(const Arguments& arguments, const Machine& machine,
          const std::function<std::optional<std::string>(std::string_view)>& environment, const fs::path& cwd)
      : settings_(arguments.settings),
        positional_(arguments.positional),
        called_as_(arguments.called_as),
        called_from_(arguments.called_from),
        warnings_(arguments.warnings),
        machine_(machine),
        environment_(environment),
        cwd_(cwd) {}

  Plan make() {
    if (positional_.empty() || positional_.front().empty()) {
      throw UsageError(kNothingToRun);
    }
    plan_.as_torchrun = called_as_ == CalledAs::kTorchrun;
    plan_.warnings = warnings_;
    choose_program();
    choose_workers();
    choose_input();
    choose_restarts();
    choose_stopping();
    choose_folders();
    choose_output();
    choose_network();
    choose_store(plan_, settings_, environment_);
    if (train()) require_resume_path(plan_, settings_);
    train() ? choose_recovery(plan_, settings_, has_a_gpu_each()) : choose_recovery_of_program(plan_, settings_);
    choose_placement();
    train() ? choose_standbys(plan_, settings_) : choose_spares(plan_, settings_, machine_);
    choose_console();
    choose_worker(plan_, settings_, machine_);
    note_options_without_effect();
    return std::move(plan_);
  }

 private:
  bool train() const { return plan_.kind == Plan::Kind::kTrain; }
  bool has_a_gpu_each() const {
    return plan_.worker_per_gpu || (plan_.device == "cuda" && plan_.nproc_per_node <= machine_.gpus());
  }

  void keep(std::string name, std::string value, std::string source) {
    plan_.sources.push_back({std::move(name), std::move(value), std::move(source)});
  }

  void choose_program() {
    const ProgramChoice choice{
        positional_, settings_.flag("module"), settings_.flag("no-python"), settings_.flag("run-path"), called_as_,
        called_from_};
    plan_.kind = kind_of(choice, cwd_);
    if (!train()) {
      plan_.command = command_of(plan_.kind, choice, machine_, environment_, cwd_);
      plan_.title = plan_.kind == Plan::Kind::kModule ? positional_.front() : fs::path(positional_.front()).filename().string();
      keep("program", positional_.front(),
           plan_.kind == Plan::Kind::kModule   ? "Python module"
           : plan_.kind == Plan::Kind::kPython ? "Python script"
                                               : "program");
      return;
    }
    for (auto word = positional_.begin() + 1; word != positional_.end(); ++word) {
      if (word->starts_with("-")) {
        throw UsageError("'" + *word + "' comes after " + positional_.front() +
                         ": options go before it, key.path=value after it");
      }
    }
    plan_.config = load_config(absolute_in(cwd_, positional_.front()), {positional_.begin() + 1, positional_.end()},
                               &plan_.warnings, [this](const std::string& by_config) {
                                 choose_own_worker(plan_, settings_, by_config, machine_, cwd_);
                                 return plan_.worker ? TaskConfig(plan_.worker->description.keys) : TaskConfig();
                               });
    plan_.title = plan_.config->name;
    keep("config", positional_.front(), positional_.size() > 1 ? "first argument, with overrides" : "first argument");
  }

  void choose_workers() {
    const Setting* setting = settings_.find("nproc-per-node");
    const bool on_cpu = train() && plan_.config->device == TrainConfig::Device::kCpu;
    std::string source;
    if (setting == nullptr) {
      const int gpus = train() && !on_cpu ? machine_.gpus() : 0;
      plan_.nproc_per_node = std::max(1, gpus);
      source = gpus > 0 ? "default: the number of GPUs" : "default";
      plan_.worker_per_gpu = gpus > 0;
    } else {
      plan_.nproc_per_node = count_workers(*setting);
      source = setting->source;
      plan_.worker_per_gpu = train() && !on_cpu && (setting->value == "gpu" || setting->value == "auto") && machine_.gpus() > 0;
    }
    keep("nproc_per_node", std::to_string(plan_.nproc_per_node), source);
    if (!train()) return mention_idle_gpus(setting != nullptr);

    const TrainConfig& config = *plan_.config;
    const bool shared = environment_("DDPTRAIN_SHARE_GPU") == "1" && machine_.gpus() > 0;
    if (config.device == TrainConfig::Device::kCuda && plan_.nproc_per_node > machine_.gpus() && !shared) {
      throw UsageError("more workers than GPUs: " + std::to_string(plan_.nproc_per_node) + " workers (" + source +
                       ") need a GPU each, and " + std::to_string(machine_.gpus()) +
                       " can be seen (NVML, /dev/nvidia*, CUDA_VISIBLE_DEVICES). Start fewer, or set \"device\": \"cpu\"");
    }
    if (config.batch_size < plan_.nproc_per_node) {
      throw UsageError("batch_size " + std::to_string(config.batch_size) + " is smaller than the number of workers, " +
                       std::to_string(plan_.nproc_per_node) + " (" + source +
                       "): it is the global batch, and each worker needs a sample of it");
    }
    plan_.device = on_cpu                                        ? "cpu"
                   : config.device == TrainConfig::Device::kCuda ? "cuda"
                   : machine_.gpus() == 0                        ? "cpu"
                                                                 : "auto";
    keep("device", plan_.device, "config" + std::string(config.device == TrainConfig::Device::kAuto ? ": auto" : ""));
  }

  // As under torchrun, a script gets one worker by default. Many new users do not expect that.
  void mention_idle_gpus(bool asked) {
    if (asked || plan_.as_torchrun || plan_.kind == Plan::Kind::kProgram) return;
    if (const int gpus = machine_.gpu_nodes(); gpus > 1) {
      plan_.warnings.push_back("1 worker; " + std::to_string(gpus) +
                               " GPUs are visible: --nproc-per-node gpu starts one for each");
    }
  }

  int count_workers(const Setting& setting) {
    if (setting.value == "cpu") return machine_.cpus();
    if (setting.value == "gpu" || setting.value == "auto") {
      const int gpus = machine_.gpus();
      if (gpus > 0) return gpus;
      if (setting.value == "auto") return machine_.xpus() > 0 ? machine_.xpus() : machine_.cpus();
      throw UsageError("--nproc-per-node gpu (" + setting.source +
                       "): no GPU can be seen (NVML, /dev/nvidia*, CUDA_VISIBLE_DEVICES)");
    }
    if (setting.value == "xpu") {
      if (const int xpus = machine_.xpus(); xpus > 0) return xpus;
      throw UsageError("--nproc-per-node xpu (" + setting.source +
                       "): no Intel GPU can be seen (/dev/dri/renderD* of the i915 or xe driver, ZE_AFFINITY_MASK)");
    }
    if (!reads_as_whole(setting.value)) {
      refuse("nproc-per-node", setting, "a number of workers, auto, cpu, gpu or xpu");
    }
    return static_cast<int>(settings_.integer("nproc-per-node", 1, kMostWorkers));
  }

  void choose_input() {
    plan_.input = input_of_workers(plan_.kind, plan_.nproc_per_node, machine_.standard_input());
    if (plan_.input == WorkersInput::kOurs) keep("standard_input", "passed on", "default of scripts");
    if (plan_.input == WorkersInput::kTerminalIsKept) {
      keep("standard_input", "/dev/null", "a terminal goes to a single worker, in the foreground");
    }
  }

  void choose_restarts() {
    const Setting* setting = settings_.find("max-restarts");
    std::string source = "default";
    if (setting != nullptr && setting->value != "auto") {
      plan_.max_restarts = static_cast<int>(settings_.integer("max-restarts", 0, 1000000));
      source = setting->source;
    } else if (setting != nullptr || train()) {
      plan_.max_restarts = kDefaultRestarts;
      plan_.refill_by_progress = true;
      if (setting != nullptr) source = setting->source;
    }
    if (const Setting* policy = settings_.find("restart-policy")) {
      const RestartPolicyFile file = load_restart_policy(absolute_in(cwd_, policy->value));
      if (setting == nullptr && file.max_restarts) {
        plan_.max_restarts = *file.max_restarts;
        plan_.refill_by_progress = file.refill_by_progress.value_or(false);
        source = policy->value;
      }
      plan_.restart_rules = file.rules;
      plan_.restart_policy_text = file.text;
      const std::string rules = describe(file.rules);
      keep("restart_policy", rules.empty() ? "the usual one" : rules, policy->value);
    }
    keep("max_restarts", std::to_string(plan_.max_restarts) + (plan_.refill_by_progress ? ", refilled by progress" : ""),
         source);
  }

  void choose_stopping() {
    const double seconds = settings_.number("shutdown-timeout", 0, 1e6);
    plan_.shutdown_timeout = std::chrono::milliseconds(nearest(seconds * 1000));
    keep("shutdown_timeout", settings_.text("shutdown-timeout") + " s", settings_.find("shutdown-timeout")->source);

    const Setting& setting = *settings_.find("signals-to-handle");
    std::string_view rest = setting.value;
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      plan_.signals_to_handle.push_back(signal_of(rest.substr(0, comma), setting));
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    }
    keep("signals_to_handle", setting.value, setting.source);

    if (const Setting* chaos = settings_.find("chaos")) {
      if (!train())
        throw UsageError("--chaos (" + chaos->source +
                         ") goes with a train.json: a script has no steps that ddprun could count");
      parse_faults(chaos->value, "--chaos");
      plan_.chaos = chaos->value;
      keep("chaos", chaos->value, chaos->source);
    }
    choose_command("on-failure", plan_.on_failure);
    choose_command("on-checkpoint", plan_.on_checkpoint);
    choose_metrics_port(plan_, settings_);
    const Setting* hang = settings_.find("hang-timeout");
    plan_.hang = hang_limits_of(hang, train() ? WorkerKind::kTrainer : WorkerKind::kScript);
    keep("hang_timeout", train() || !plan_.hang.watch ? describe(plan_.hang) : hang->value + " s without output",
         hang != nullptr ? hang->source : "default");
  }

  void choose_command(std::string_view option, std::string& command) {
    const Setting* setting = settings_.find(option);
    if (setting == nullptr) return;
    if (setting->value.find_first_not_of(' ') == std::string::npos) refuse(option, *setting, "a command for the shell");
    command = setting->value;
    keep_option(option, *setting);
  }

  static int signal_of(std::string_view name, const Setting& setting) {
    std::string_view bare = name;
    while (bare.starts_with(' ')) bare.remove_prefix(1);
    while (bare.ends_with(' ')) bare.remove_suffix(1);
    if (bare.starts_with("SIG")) bare.remove_prefix(3);
    for (int number = 1; number < NSIG; ++number) {
      if (bare.empty() || bare != signal_abbreviation(number)) continue;
      if (number == SIGKILL || number == SIGSTOP || number == SIGCHLD) break;
      return number;
    }
    refuse("signals-to-handle", setting,
           "names of signals that can be caught, such as SIGTERM,SIGINT, not '" + std::string(name) + "'");
  }

  void choose_folders() {
    plan_.fresh = settings_.flag("fresh");
    plan_.data_changed = settings_.flag("data-changed");
    const Setting resume = *settings_.find("resume");
    const Setting* run_dir_setting = settings_.find("run-dir");
    if (run_dir_setting != nullptr && run_dir_setting->value.empty())
      refuse("run-dir", *run_dir_setting, "the name of a folder");
    const std::string run_dir = settings_.text("run-dir");
    if (train()) {
      plan_.run_dir = absolute_in(cwd_, run_dir.empty() ? fs::path("runs") / plan_.config->name : fs::path(run_dir));
      keep("run_dir", plan_.run_dir.string(), run_dir.empty() ? "default" : settings_.find("run-dir")->source);
      choose_resume(plan_, settings_, absolute_in(cwd_, resume.value));
      if (settings_.given("log-dir"))
        plan_.notes.emplace_back("--log-dir has no effect with a train.json: logs are in the run directory");
      return;
    }
    if (resume.value != "auto") refuse("resume", resume, "a train.json to go with it: a script resumes by itself");
    if (plan_.fresh)
      throw UsageError("--fresh (" + settings_.find("fresh")->source +
                       ") goes with a train.json: a script's files are its own");
    if (plan_.data_changed)
      throw UsageError("--data-changed (" + settings_.find("data-changed")->source +
                       ") goes with a train.json: a script looks after its own data");
    if (!run_dir.empty()) {
      plan_.run_dir = absolute_in(cwd_, run_dir);
      keep("run_dir", plan_.run_dir.string(), settings_.find("run-dir")->source);
    }
    if (const std::string log_dir = settings_.text("log-dir"); !log_dir.empty() && log_dir != "/dev/null") {
      plan_.log_dir = absolute_in(cwd_, log_dir);
      keep("log_dir", plan_.log_dir.string(), settings_.find("log-dir")->source);
    }
  }

  void choose_output() {
    if (!train()) {
      OutputChoice choice = resolve_output(settings_, plan_.nproc_per_node);
      plan_.output = std::move(choice.plan);
      plan_.notes.insert(plan_.notes.end(), choice.notes.begin(), choice.notes.end());
    }
    for (const std::string_view option : kOnlyForScripts) {
      if (!settings_.given(option)) continue;
      if (train()) {
        plan_.notes.push_back("--" + std::string(option) + " has no effect with a train.json");
      } else {
        keep_option(option, *settings_.find(option));
      }
    }
  }

  void keep_option(std::string_view option, const Setting& setting) {
    std::string name(option);
    std::replace(name.begin(), name.end(), '-', '_');
    keep(std::move(name), setting.value, setting.source);
  }

  void choose_placement() {
    plan_.virtual_local_rank = settings_.flag("virtual-local-rank");
    if (plan_.virtual_local_rank) keep_option("virtual-local-rank", *settings_.find("virtual-local-rank"));
    const Setting* numa = settings_.find("numa-binding");
    if (numa == nullptr) return;
    constexpr std::array<std::pair<std::string_view, Numa>, 4> kModes{{{"node", Numa::kNode},
                                                                       {"socket", Numa::kSocket},
                                                                       {"exclusive", Numa::kExclusive},
                                                                       {"core-complex", Numa::kCoreComplex}}};
    for (const auto& [word, mode] : kModes) {
      if (numa->value == word) plan_.numa = mode;
    }
    keep_option("numa-binding", *numa);
  }

  void choose_network() {
    Network network = resolve_network(settings_, train(), plan_.title);
    plan_.rendezvous = std::move(network.rendezvous);
    plan_.warnings.insert(plan_.warnings.end(), network.warnings.begin(), network.warnings.end());
    for (const std::string_view option : {"nnodes", "node-rank", "rdzv-conf", "arbiter", "port-range"})
      if (settings_.given(option)) keep_option(option, *settings_.find(option));
    choose_interface();
    plan_.master_addr = network.master_addr;
    plan_.master_port = network.master_port;
    plan_.master_port_need = network.master_port_need;
    plan_.run_id = network.run_id;
    if (const std::string file = settings_.text("token-file"); !file.empty()) {
      plan_.token_file = absolute_in(cwd_, file);
      keep("token_file", plan_.token_file.string(), settings_.find("token-file")->source);
    }
    plan_.role = settings_.text("role");
    plan_.notes.insert(plan_.notes.end(), network.notes.begin(), network.notes.end());
    keep("master_addr", plan_.master_addr, network.master_source);
    keep("master_port", plan_.master_port == 0 ? "a free one" : std::to_string(plan_.master_port), network.port_source);
    keep("run_id", plan_.run_id, network.run_id_source);
    keep("role", plan_.role, settings_.find("role")->source);
  }

  // --local-addr takes precedence over --interface for the agents' own address, since it names one exact address.
  void choose_interface() {
    const Setting* setting = settings_.find("interface");
    if (setting == nullptr) return;
    const std::string address = machine_.address_of(setting->value);
    plan_.interface = setting->value;
    if (plan_.rendezvous.local_addr.empty()) plan_.rendezvous.local_addr = address;
    keep("interface", setting->value, setting->source);
    for (const char* variable : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
      const auto set = environment_(variable);
      if (set && !set->empty() && *set != setting->value)
        plan_.notes.push_back(std::string(variable) + "=" + *set + " of the environment stays: --interface does not change it");
    }
  }

  void choose_console() {
    plan_.json = settings_.flag("json");
    plan_.dry_run = settings_.flag("dry-run");
    if (settings_.flag("quiet")) {
      plan_.verbosity = -1;
    } else if (settings_.find("verbose") != nullptr) {
      plan_.verbosity = static_cast<int>(std::min<std::int64_t>(2, settings_.integer("verbose", 0, 100)));
    }
  }

  // torchrun's log class decides where logs go. ddprun has no such class and warns that the option has no effect.
  void warn_of_log_class(const Setting& setting) {
    if (setting.value == "default" || setting.value == "DefaultLogsSpecs") return;
    plan_.warnings.push_back("--logs-specs " + setting.value + " (" + setting.source +
                             ") has no effect: it names a Python class of torchrun's; logs go where torchrun's default puts "
                             "them (--log-dir, --redirects, --tee)");
  }

  void note_options_without_effect() {
    for (const OptionSpec& option : option_table()) {
      if (option.group != OptionGroup::kNoEffect || !settings_.given(option.name)) continue;
      if (option.name == "logs-specs") {
        warn_of_log_class(*settings_.find("logs-specs"));
        continue;
      }
      plan_.notes.push_back("--" + std::string(option.name) + " has no effect here: " + std::string(option.doc));
    }
  }

  const Settings& settings_;
  const std::vector<std::string>& positional_;
  const CalledAs called_as_;
  const fs::path& called_from_;
  const std::vector<std::string>& warnings_;
  const Machine& machine_;
  const std::function<std::optional<std::string>(std::string_view)>& environment_;
  const fs::path cwd_;
  Plan plan_;
};

}  // namespace

Plan make_plan(const Arguments& arguments, const Machine& machine,
               const std::function<std::optional<std::string>(std::string_view)>& environment, const fs::path& cwd) {
  Plan plan = Planner(arguments, machine, environment, cwd).make();
  place_workers(plan, machine, environment);
  return plan;
}

RestartLimits restart_limits(const Plan& plan) {
  return {.max_restarts = plan.max_restarts,
          .refill_by_progress = plan.refill_by_progress,
          .rules = plan.restart_rules,
          .preempted_has_saved = plan.kind == Plan::Kind::kTrain};
}

}  // namespace ddprun
