#include "launcher/doctor/doctor.hpp"

#include <chrono>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/version.hpp"
#include "common/system/host_name.hpp"
#include "launcher/doctor/libtorch_version.hpp"
#include "launcher/doctor/observe_folders.hpp"
#include "launcher/doctor/observe_gpus.hpp"
#include "launcher/doctor/observe_limits.hpp"
#include "launcher/doctor/observe_network.hpp"
#include "launcher/doctor/probes.hpp"
#include "launcher/doctor/verdicts/node_facts.hpp"
#include "launcher/machine/kernel_file.hpp"

namespace ddprun::doctor {
namespace {

using std::chrono::milliseconds;

JobNeeds::Work work_of(Plan::Kind kind) {
  switch (kind) {
    case Plan::Kind::kTrain:
      return JobNeeds::Work::kTrain;
    case Plan::Kind::kPython:
    case Plan::Kind::kModule:
      return JobNeeds::Work::kPython;
    case Plan::Kind::kProgram:
      return JobNeeds::Work::kProgram;
  }
  return JobNeeds::Work::kUnknown;
}

JobNeeds::Gpus gpus_of(const Plan& plan) {
  if (plan.trains() && plan.device == "cpu") return JobNeeds::Gpus::kUnused;
  if (plan.trains() && (plan.device == "cuda" || plan.worker_per_gpu)) return JobNeeds::Gpus::kRequired;
  return JobNeeds::Gpus::kIfFound;
}

Check late(const std::string& name, const std::string& found, const std::string& remedy) {
  return warning(name, found + " within " + std::to_string(kQuickLimit.count() / 1000.0).substr(0, 3) + " s", remedy);
}

void add_fact(Checks& checks, const std::string& name, const std::string& value) {
  if (!value.empty()) checks.push_back(fact(name, value));
}

void add_gpu_facts(Checks& checks, const GpuFacts& facts) {
  std::set<std::string> models;
  for (const Gpu& gpu : facts.gpus) {
    if (!gpu.name.empty()) models.insert(gpu.name);
  }
  std::string text;
  for (const std::string& model : models) text += (text.empty() ? "" : ", ") + model;
  add_fact(checks, "gpu-model", text);
  add_fact(checks, "gpus", std::to_string(facts.usable));
  const std::string driver = read_kernel_file("/sys/module/nvidia/version").value_or("");
  add_fact(checks, "driver", driver.substr(0, driver.find('\n')));
}

// Makes one probe for each subject, in the order of the table. The probes refer to `job`, which must outlive them.
class Subjects {
 public:
  Subjects(const Examination& job, Depth depth) : job_(job), depth_(depth) {
    add_programs();
    add_network();
    add_limits();
    add_folders();
    add_local_copies();
    add_gpus();
    add_data();
  }
  std::vector<Probe> take() { return std::move(probes_); }

 private:
  void add(const char* name, std::function<Checks()> function, Check if_late, milliseconds limit = kQuickLimit) {
    probes_.push_back({name, std::move(function), limit, std::move(if_late)});
  }
  milliseconds limit() const { return depth_ == Depth::kFull ? kFullLimit : kQuickLimit; }

  void add_programs() {
    const std::string remedy = "check the disk or file server that contains the program";
    if (!job_.has_custom_worker) {
      add(
          "ddptrain",
          [this] {
            const TrainerFacts facts = observe_trainer(depth_);
            Checks checks = judge_trainer(facts, kVersion, job_.needs);
            if (job_.collects_facts && !checks.empty()) add_fact(checks, "libtorch", libtorch_of(facts.path).value_or(""));
            return checks;
          },
          late("ddptrain", "ddptrain was not found or did not answer", remedy), limit());
    }
    add(
        "python",
        [this] {
          const PythonFacts facts = observe_python(job_.python, depth_, job_.needs);
          Checks checks = judge_python(facts, job_.needs);
          if (job_.collects_facts) add_fact(checks, "python", facts.version);
          if (job_.collects_facts) add_fact(checks, "torch", facts.torch_version);
          return checks;
        },
        late("python", "Python did not answer", remedy), limit());
  }

  void add_network() {
    const std::string remedy = "check the name servers in /etc/resolv.conf, or add the name to /etc/hosts";
    const std::string name = host_name();
    const InterfaceFacts facts = observe_interfaces();  // reads variables and kernel tables, which never block
    add(
        "host-name", [this, name, gloo = facts.gloo] { return judge_host_name(observe_name(name), gloo, job_.needs); },
        late("host-name", "the resolver did not answer the query for the host name " + name, remedy));
    if (const std::string& meeting = job_.needs.meeting_host; !meeting.empty() && job_.needs.many_nodes()) {
      add(
          "master-address", [this] { return judge_meeting_host(observe_name(job_.needs.meeting_host), job_.needs); },
          late("master-address", "the resolver did not answer the query for the address of the first node, " + meeting,
               remedy));
    }
    add(
        "interface", [this, facts] { return judge_interfaces(facts, job_.needs); },
        late("interface", "the interfaces could not be listed", "check the network: ip addr"));
  }

  void add_limits() {
    const JobNeeds& needs = job_.needs;
    add(
        "limits",
        [&needs, collects = job_.collects_facts] {
          const LimitFacts limits = observe_limits();
          Checks checks = judge_limits(limits, needs);
          if (const auto bytes = observe_free_memory(); collects && bytes)
            add_fact(checks, "free-memory", std::to_string(*bytes));
          if (collects && limits.open_files) add_fact(checks, "open-files", std::to_string(*limits.open_files));
          for (const Checks& more : {judge_cpus(observe_cpus(), needs), judge_shared_memory(observe_shared_memory(), needs),
                                     judge_clock(observe_clock(), needs), judge_tracing(observe_tracing())}) {
            checks.insert(checks.end(), more.begin(), more.end());
          }
          checks.push_back(ok("cgroups", describe_cgroups()));
          return checks;
        },
        late("limits", "the limits in /proc and /sys could not be read", "check the load of this machine"));
  }

  void add_folders() {
    const std::string temporary = temporary_folder();
    add(
        "temporary-folder", [this, temporary] { return judge_temporary_folder(observe_folder(temporary), job_.needs); },
        error("temporary-folder", temporary + " does not respond: a write did not finish in time",
              "set TMPDIR to a folder on a local disk"));
    if (job_.run_dir.empty()) return;
    add(
        "run-directory", [this] { return judge_run_directory(observe_folder(job_.run_dir), job_.needs); },
        error("run-directory", job_.run_dir.string() + " does not respond: a write did not finish in time",
              "check the disk or file server, or choose another folder with --run-dir"));
  }

  void add_local_copies() {
    const std::string folder = job_.config ? job_.config->checkpoint.local_dir : "";
    if (folder.empty()) return;
    add(
        "local-copies", [folder] { return judge_local_copies(observe_folder(folder)); },
        error("local-copies", folder + " does not respond: a write did not finish in time",
              "set checkpoint.local_dir to a folder on a local disk"));
  }

  void add_gpus() {
    add(
        "gpus",
        [this] {
          const GpuFacts facts = observe_gpus();
          Checks checks = judge_gpus(facts, job_.needs);
          if (job_.collects_facts) add_gpu_facts(checks, facts);
          return checks;
        },
        late("gpus", "the NVIDIA driver did not answer",
             "run nvidia-smi: if it is slow too, start nvidia-persistenced, or check the kernel log for Xid errors"));
  }

  void add_data() {
    if (!job_.config) return;
    add(
        "data", [this] { return judge_data(observe_data(*job_.config, job_.has_custom_worker, depth_)); },
        warning("data", "the data could not be read in time", "check the disk or file server that contains the data"), limit());
  }

  const Examination& job_;
  const Depth depth_;
  std::vector<Probe> probes_;
};

}  // namespace

Examination examination_of(const Plan& plan) {
  Examination job;
  job.needs = {.work = work_of(plan.kind),
               .gpus = gpus_of(plan),
               .workers = plan.nproc_per_node,
               .nodes = plan.rendezvous.max_nodes,
               .meeting_host = plan.rendezvous.host,
               .is_first = plan.rendezvous.is_host,
               .join_timeout = std::chrono::ceil<std::chrono::seconds>(plan.rendezvous.join_timeout),
               .interface = plan.interface};
  const char* const share = std::getenv("DDPTRAIN_SHARE_GPU");
  job.needs.share_gpus = share != nullptr && std::string_view(share) == "1";
  if (plan.rendezvous.node_rank) job.needs.is_first = *plan.rendezvous.node_rank == 0;
  job.config = plan.config;
  job.has_custom_worker = plan.worker.has_value();
  if (job.needs.work == JobNeeds::Work::kPython) job.python = plan.command.front();
  job.run_dir = plan.run_dir;
  return job;
}

Checks examine(const Examination& job, Depth depth, std::chrono::steady_clock::time_point start) {
  Checks checks{ok("ddprun", version_and_commit())};
  const Checks found = run_probes(Subjects(job, depth).take(), start);
  checks.insert(checks.end(), found.begin(), found.end());
  return checks;
}

std::vector<std::string> preflight(const Plan& plan) {
  std::vector<std::string> warnings;
  std::string errors;
  for (const Check& check : examine(examination_of(plan), Depth::kQuick, std::chrono::steady_clock::now())) {
    const std::string line = check.check + ": " + check.found;
    if (check.verdict == CheckVerdict::kWarning) warnings.push_back("preflight: " + line + "; to fix it: " + check.remedy);
    if (check.verdict == CheckVerdict::kError) errors += "\n  " + line + "\n    do: " + check.remedy;
  }
  if (!errors.empty()) throw UsageError("the job was not started, because --preflight found errors on this machine:" + errors);
  return warnings;
}

}  // namespace ddprun::doctor
