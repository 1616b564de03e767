#include "launcher/plan/plan_trainer.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/error.hpp"
#include "launcher/machine/numa_binding.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// time limit for replacing a lost worker; enough to start a process on a busy machine
constexpr std::chrono::seconds kRegroupLimit{60};

fs::path ddptrain_of(const Machine& machine) {
  auto trainer = machine.next_to_self("ddptrain");
  if (!trainer) trainer = machine.on_path("ddptrain");
  if (trainer) return *trainer;
  throw UsageError(
      "the worker program ddptrain was found neither next to ddprun nor on PATH. It needs LibTorch: build it with ./dev build");
}

std::vector<std::string> trainer_command(const Plan& plan, const fs::path& program) {
  // A fresh start must not resume, even if other nodes have checkpoints of an earlier run.
  const bool restarts = plan.resume == Plan::Resume::kNever || (plan.fresh && plan.resume == Plan::Resume::kAuto);
  const std::string how = restarts ? "never" : plan.resume == Plan::Resume::kAuto ? "auto" : plan.resume_from.string();
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
  plan.record("resume", setting.value, setting.source);
  plan.record("fresh", plan.fresh ? "yes" : "no", plan.fresh ? settings.find("fresh")->source : "default");
  if (plan.data_changed) plan.record("data_changed", "yes", settings.find("data-changed")->source);
  if (setting.value == "auto") return;
  if (setting.value == "never") {
    plan.resume = Plan::Resume::kNever;
    return;
  }
  plan.resume = Plan::Resume::kPath;
  plan.resume_from = named;
  std::error_code error;
  // Resolves links such as checkpoints/latest, since the worker compares the directory's name with the checkpoint in it.
  if (const fs::path real = fs::canonical(plan.resume_from, error); !error) plan.resume_from = real;
  if (fs::is_directory(plan.resume_from, error) && !fs::exists(plan.resume_from / "manifest.json", error)) {
    refuse("resume", setting, "auto, never or a checkpoint folder (with a manifest.json), such as RUN_DIR/checkpoints/latest");
  }
  const fs::path run_dir = fs::weakly_canonical(plan.run_dir, error);
  const auto [run_end, unused] =
      std::mismatch(run_dir.begin(), run_dir.end(), plan.resume_from.begin(), plan.resume_from.end());
  if (plan.fresh && run_end == run_dir.end()) {
    throw UsageError("--fresh renames " + plan.run_dir.string() +
                     ", and --resume names a checkpoint inside it: use another --run-dir instead of --fresh");
  }
}

void require_resume_path(const Plan& plan, const Settings& settings) {
  if (plan.resume != Plan::Resume::kPath) return;
  const Setting& setting = *settings.find("resume");
  const bool may_be_on_another_node = plan.rendezvous.many() || plan.rendezvous.joins;
  if (!setting.value.empty() && (may_be_on_another_node || fs::exists(plan.resume_from))) return;
  refuse("resume", setting, "auto, never or the path of an existing checkpoint");
}

void choose_recovery(Plan& plan, const Settings& settings, bool through_nccl) {
  // Live recovery is less tested on several machines and untested with NCCL, so in these cases it is off by default.
  const bool others_stay = plan.nproc_per_node > 1 && !plan.rendezvous.many() && !plan.rendezvous.joins && !through_nccl;
  const Setting* setting = settings.find("recovery");
  const bool live = setting != nullptr ? setting->value == "live" : others_stay;
  if (live) plan.regroup_limit = kRegroupLimit;
  plan.record("recovery", live ? "live" : "checkpoint", setting != nullptr ? setting->source : "default");
  plan.live_nccl = live && through_nccl;
  if (!plan.live_nccl) return;
  plan.warnings.push_back(
      "--recovery live (" + setting->source +
      ") is experimental if each worker has its own GPU: live recovery through NCCL is implemented but has never run. It "
      "makes each step wait for the GPU, and if a worker is stuck in NCCL, all workers restart from the newest checkpoint");
}

// Applies --recovery to a program or script. Later the workers report whether they support live recovery
// (channel::Regroupable). On several machines it is off by default.
void choose_recovery_of_program(Plan& plan, const Settings& settings) {
  const Setting* setting = settings.find("recovery");
  const bool many = plan.rendezvous.many() || plan.rendezvous.joins;
  const bool live = setting != nullptr ? setting->value == "live" : !many;
  const bool in_python = plan.kind == Plan::Kind::kPython || plan.kind == Plan::Kind::kModule;
  if (live && many && in_python) {
    plan.notes.emplace_back(
        "--recovery live has no effect: on several machines, all workers of a Python script restart if one is lost");
  } else if (live && (many || plan.nproc_per_node > 1)) {
    plan.regroup_limit = kRegroupLimit;
  }
  if (setting != nullptr) {
    plan.record("recovery", plan.regroup_limit.count() > 0 ? "live" : "checkpoint", setting->source);
  }
}

void choose_standbys(Plan& plan, const Settings& settings) {
  if (settings.given("preload")) plan.notes.emplace_back("--preload has no effect with a train.json");
  const Setting* setting = settings.find("standby");
  if (setting == nullptr) return;
  const auto refuse_standbys = [&](const std::string& why) { throw UsageError("--standby (" + setting->source + ") " + why); };
  const int wanted = static_cast<int>(settings.integer("standby", 0, kMaxWorkers));
  if (wanted == 0) return;
  if (plan.rendezvous.many() || plan.rendezvous.joins)
    refuse_standbys("requires a single machine: on several machines a new process replaces a lost worker");
  if (plan.nproc_per_node < 2)
    refuse_standbys("needs at least two workers: if the only worker is lost, no other worker has the training state");
  if (plan.regroup_limit.count() == 0)
    refuse_standbys("needs --recovery live: with --recovery checkpoint, all workers restart if one is lost");
  if (plan.max_restarts == 0) refuse_standbys("needs restarts: with --max-restarts 0 a lost worker is not replaced");
  if (plan.device == "cuda")
    refuse_standbys("requires workers on the CPU: workers that use NCCL cannot continue if one is lost");
  if (plan.numa != Numa::kNone || plan.virtual_local_rank)
    refuse_standbys(std::string("cannot be combined with ") +
                    (plan.virtual_local_rank ? "--virtual-local-rank" : "--numa-binding") +
                    ": a standby is started before its rank is known");
  plan.standbys = wanted;
  plan.record("standby", std::to_string(wanted), setting->source);
  if (plan.device == "auto")
    plan.notes.emplace_back("--standby has no effect if the workers use GPUs: if one is lost, all of them restart");
}

void choose_custom_worker(Plan& plan, const Settings& settings, const std::string& by_config, const Machine& machine,
                          const fs::path& cwd) {
  std::optional<NamedWorker> by_option;
  if (settings.given("worker")) {
    const Setting& setting = *settings.find("worker");
    by_option = NamedWorker{setting.value, setting.source};
  }
  plan.worker = find_custom_worker(by_option, by_config, machine, cwd);
  if (!plan.worker) return;
  const WorkerDescription& about = plan.worker->description;
  plan.record("worker", plan.worker->program.string(), plan.worker->source);
  plan.record("worker_is", about.name + (about.version.empty() ? "" : " " + about.version),
              "its --describe: " + std::to_string(about.keys.size()) + (about.keys.size() == 1 ? " key" : " keys") +
                  " added by it, LibTorch " + about.libtorch);
}

void choose_worker(Plan& plan, const Settings& settings, const Machine& machine) {
  if (!plan.trains()) {
    if (settings.given("worker"))
      refuse("worker", *settings.find("worker"), "no value together with a script, since --worker is for a train.json");
    return;
  }
  plan.command = trainer_command(plan, plan.worker ? plan.worker->program : ddptrain_of(machine));
}

}  // namespace ddprun
