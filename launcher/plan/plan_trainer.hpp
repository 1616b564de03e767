// The choices for a job with a train.json: the checkpoint from which it resumes, live recovery of lost workers, standbys, and
// the workers' program. Live recovery is also available to C++ training loops. plan.cpp calls these functions. They read
// options and inspect files, but start no process and write no file. They throw UsageError.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

inline constexpr int kMaxWorkers = 4096;  // maximum number of workers on one machine, and maximum of --standby

// Reads --resume into plan.resume and plan.resume_from, and records the sources of --resume and --fresh. `named` is the value
// of --resume as an absolute path; it is not used if the value is "auto" or "never". Call this after plan.run_dir and
// plan.fresh are set.
void choose_resume(Plan& plan, const Settings& settings, const std::filesystem::path& named);

// Throws UsageError if --resume names a checkpoint that does not exist. In a multi-node job it accepts any path, since the
// checkpoint may be on another node, whose workers then send the state. If no node has it, the workers report an error. Call
// this after plan.rendezvous is set.
void require_resume_path(const Plan& plan, const Settings& settings);

// Reads --recovery into plan.regroup_limit and records the source. The default depends on the number of workers and on the
// rendezvous, so both must be set before. `through_nccl` is true if each worker has its own GPU, so that NCCL connects the
// workers.
void choose_recovery(Plan& plan, const Settings& settings, bool through_nccl);

// Reads --recovery for a program or a script. The option has an effect only for C++ training loops that report that they can
// regroup (sdk/include/ddprun/job.hpp).
void choose_recovery_of_program(Plan& plan, const Settings& settings);

// Reads --standby into plan.standbys and records the source. Throws UsageError if no standby could ever replace a worker in
// this job. Call this after workers, rendezvous, restarts, recovery, device and placement are chosen.
void choose_standbys(Plan& plan, const Settings& settings);

// Finds the user's worker program, which --worker or the config names, sets plan.worker, and records the source. Call this
// before the config is read, since the program defines some of its keys. `by_config` is an absolute path, or "" if the config
// names no program.
void choose_custom_worker(Plan& plan, const Settings& settings, const std::string& by_config, const Machine& machine,
                          const std::filesystem::path& cwd);

// Sets plan.command, the argv of a worker. The program is plan.worker, or else ddptrain next to ddprun or on PATH. For a script
// it only refuses the option --worker, so call it for every plan. Call this after plan.run_dir, plan.resume and plan.fresh are
// set.
void choose_worker(Plan& plan, const Settings& settings, const Machine& machine);

}  // namespace ddprun
