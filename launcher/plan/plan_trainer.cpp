// Implementation of plan_trainer.hpp, in the order in which plan.cpp calls it.
#include "launcher/plan/plan_trainer.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/error.hpp"
#include "launcher/machine/numa_binding.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kRegroupLimit{60};  // long enough for a new worker on a busy machine

void keep_source(Plan& plan, std::string name, std::string value, std::string source) {
  plan.sources.push_back({std::move(name), std::move(value), std::move(source)});
}

fs::path ddptrain_of(const Machine& machine) {
  auto trainer = machine.beside_self("ddptrain");
  if (!trainer) trainer = machine.on_path("ddptrain");
  if (trainer) return *trainer;
  throw UsageError(
      "the worker program ddptrain was found neither beside ddprun nor on PATH. It needs LibTorch: build it with ./dev build");
}

std::vector<std::string> trainer_command(const Plan& plan, const fs::path& program) {
  // A fresh start must not resume, even if nodes have copies of the earlier run's checkpoints.
  const bool anew = plan.resume == Plan::Resume::kNever || (plan.fresh && plan.resume == Plan::Resume::kAuto);
  const std::string how = anew ? "never" : plan.resume == Plan::Resume::kAuto ? "auto" : plan.resume_from.string();
  std::vector<std::string> command{program.string(), "--run-dir", plan.run_dir.string(), "--resume", how};
  if (plan.worker_per_gpu) command.emplace_back("--worker-per-gpu");
  if (plan.live_nccl) command.emplace_back("--live-nccl");
  if (plan.data_changed) command.emplace_back("--data-changed");
  command.push_back((plan.run_dir / "config.json").string());
  return command;
}

}  // namespace

void choose_resume(Plan& plan, const Settings& settings, const fs::path& named) {
  const Setting& setting = *settings.find("resume");
  keep_source(plan, "resume", setting.value, setting.source);
  keep_source(plan, "fresh", plan.fresh ? "yes" : "no", plan.fresh ? settings.find("fresh")->source : "default");
  if (plan.data_changed) keep_source(plan, "data_changed", "yes", settings.find("data-changed")->source);
  if (setting.value == "auto") return;
  if (setting.value == "never") {
    plan.resume = Plan::Resume::kNever;
    return;
  }
  plan.resume = Plan::Resume::kPath;
  plan.resume_from = named;
  std::error_code error;
  // checkpoints/latest is a symbolic link. It is resolved, since the worker compares the folder's name with its content.
  if (const fs::path real = fs::canonical(plan.resume_from, error); !error) plan.resume_from = real;
  if (fs::is_directory(plan.resume_from, error) && !fs::exists(plan.resume_from / "manifest.json", error)) {
    refuse("resume", setting,
           "auto, never or a checkpoint's folder (with a manifest.json), such as RUN_DIR/checkpoints/latest");
  }
  const fs::path run_dir = fs::weakly_canonical(plan.run_dir, error);
  const auto [run_end, unused] =
      std::mismatch(run_dir.begin(), run_dir.end(), plan.resume_from.begin(), plan.resume_from.end());
  if (plan.fresh && run_end == run_dir.end()) {
    throw UsageError("--fresh renames " + plan.run_dir.string() +
                     ", and --resume names a checkpoint inside it: give --run-dir another folder instead of --fresh");
  }
}

void require_resume_path(const Plan& plan, const Settings& settings) {
  if (plan.resume != Plan::Resume::kPath) return;
  const Setting& setting = *settings.find("resume");
  const bool others_may_have_it = plan.rendezvous.many() || plan.rendezvous.joins;
  if (!setting.value.empty() && (others_may_have_it || fs::exists(plan.resume_from))) return;
  refuse("resume", setting, "auto, never or the path of a checkpoint that exists");
}

void choose_recovery(Plan& plan, const Settings& settings, bool through_nccl) {
  // Live recovery is less tested on many machines, and untested through NCCL. There the user must enable it.
  const bool others_stay = plan.nproc_per_node > 1 && !plan.rendezvous.many() && !plan.rendezvous.joins && !through_nccl;
  const Setting* setting = settings.find("recovery");
  const bool live = setting != nullptr ? setting->value == "live" : others_stay;
  if (live) plan.regroup_limit = kRegroupLimit;
  keep_source(plan, "recovery", live ? "live" : "checkpoint", setting != nullptr ? setting->source : "default");
  plan.live_nccl = live && through_nccl;
  if (!plan.live_nccl) return;
  plan.warnings.push_back(
      "--recovery live (" + setting->source +
      ") is for those who try it where workers have a GPU each: live recovery through NCCL is written and has never run. "
      "Each step waits for its GPU, and where a worker does not get out of NCCL, all start anew from the newest checkpoint");
}

// The workers report whether they can keep their state (channel::Regroupable). On many machines the user must enable it, as
// above.
void choose_recovery_of_program(Plan& plan, const Settings& settings) {
  const Setting* setting = settings.find("recovery");
  const bool many = plan.rendezvous.many() || plan.rendezvous.joins;
  const bool live = setting != nullptr ? setting->value == "live" : !many;
  const bool in_python = plan.kind == Plan::Kind::kPython || plan.kind == Plan::Kind::kModule;
  if (live && many && in_python) {
    plan.notes.emplace_back("--recovery live has no effect here: on many machines all workers of a Python script start anew");
  } else if (live && (many || plan.nproc_per_node > 1)) {
    plan.regroup_limit = kRegroupLimit;
  }
  if (setting != nullptr) {
    keep_source(plan, "recovery", plan.regroup_limit.count() > 0 ? "live" : "checkpoint", setting->source);
  }
}

void choose_standbys(Plan& plan, const Settings& settings) {
  if (settings.given("preload")) plan.notes.emplace_back("--preload has no effect with a train.json");
  const Setting* setting = settings.find("standby");
  if (setting == nullptr) return;
  const auto refuse_standbys = [&](const std::string& why) { throw UsageError("--standby (" + setting->source + ") " + why); };
  const int wanted = static_cast<int>(settings.integer("standby", 0, kMostWorkers));
  if (wanted == 0) return;
  if (plan.rendezvous.many() || plan.rendezvous.joins)
    refuse_standbys("goes with one machine: on many, a lost worker is replaced by a new one");
  if (plan.nproc_per_node < 2) refuse_standbys("needs two workers or more: one that is lost leaves nobody who holds the state");
  if (plan.regroup_limit.count() == 0)
    refuse_standbys("needs --recovery live: with --recovery checkpoint all workers start anew after a loss");
  if (plan.max_restarts == 0) refuse_standbys("needs restarts: with --max-restarts 0 a lost worker is not replaced");
  if (plan.device == "cuda")
    refuse_standbys("goes with workers on the CPU: those that talk through NCCL cannot go on without a lost one");
  if (plan.numa != Numa::kNone || plan.virtual_local_rank)
    refuse_standbys(std::string("does not go with ") + (plan.virtual_local_rank ? "--virtual-local-rank" : "--numa-binding") +
                    ": a standby is started before it is known whose place it takes");
  plan.standbys = wanted;
  keep_source(plan, "standby", std::to_string(wanted), setting->source);
  if (plan.device == "auto")
    plan.notes.emplace_back("--standby has no effect when the workers use GPUs: after a loss all of them start anew");
}

void choose_own_worker(Plan& plan, const Settings& settings, const std::string& by_config, const Machine& machine,
                       const fs::path& cwd) {
  std::optional<NamedWorker> by_option;
  if (settings.given("worker")) {
    const Setting& setting = *settings.find("worker");
    by_option = NamedWorker{setting.value, setting.source};
  }
  plan.worker = find_own_worker(by_option, by_config, machine, cwd);
  if (!plan.worker) return;
  const WorkerDescription& about = plan.worker->description;
  keep_source(plan, "worker", plan.worker->program.string(), plan.worker->source);
  keep_source(plan, "worker_is", about.name + (about.version.empty() ? "" : " " + about.version),
              "its --describe: " + std::to_string(about.keys.size()) + (about.keys.size() == 1 ? " key" : " keys") +
                  " of its own, LibTorch " + about.libtorch);
}

void choose_worker(Plan& plan, const Settings& settings, const Machine& machine) {
  if (plan.kind != Plan::Kind::kTrain) {
    if (settings.given("worker"))
      refuse("worker", *settings.find("worker"), "a train.json to go with it: a script is its own worker");
    return;
  }
  plan.command = trainer_command(plan, plan.worker ? plan.worker->program : ddptrain_of(machine));
}

}  // namespace ddprun
