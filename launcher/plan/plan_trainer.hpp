// The choices for a train.json: the checkpoint from which its run resumes, live recovery of lost workers (also for C++ training
// loops), standbys, and ddptrain as the workers' program. plan.cpp calls these functions in its own order. They read options
// and inspect files, start and write nothing, and throw UsageError.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

inline constexpr int kMostWorkers = 4096;  // on one machine, including standbys

// Reads --resume into plan.resume and plan.resume_from, and records the sources of --resume and --fresh. `named` is the value
// as an absolute path, unless it is auto or never. Reads plan.run_dir and plan.fresh.
void choose_resume(Plan& plan, const Settings& settings, const std::filesystem::path& named);

// Refuses a checkpoint that does not exist. In a multi-node job another node may have the checkpoint. Its workers then send the
// state, and the workers refuse the checkpoint only if no node has it. Reads plan.rendezvous.
void require_resume_path(const Plan& plan, const Settings& settings);

// Reads --recovery into plan.regroup_limit and records its source. Reads workers and rendezvous. `through_nccl`: each worker
// has its own GPU.
void choose_recovery(Plan& plan, const Settings& settings, bool through_nccl);

// The same for a program or script. A C++ training loop may report that it can regroup (sdk/include/ddprun/job.hpp). For other
// programs this has no effect.
void choose_recovery_of_program(Plan& plan, const Settings& settings);

// Reads --standby into plan.standbys and records its source. Call it for every plan, since it refuses any job in which no
// standby could ever take over, including a script's. Reads workers, rendezvous, restarts, recovery, device and placement.
void choose_standbys(Plan& plan, const Settings& settings);

// Writes the program named by --worker or by the config to plan.worker, and records its source. Call it before the config is
// read, since the program defines some of the config's keys. `by_config` is an absolute path, or "".
void choose_own_worker(Plan& plan, const Settings& settings, const std::string& by_config, const Machine& machine,
                       const std::filesystem::path& cwd);

// Writes the argv of a worker to plan.command: the program in plan.worker, else the ddptrain next to ddprun or on PATH. Call it
// for every plan, since it refuses --worker for a script. Reads plan.run_dir, plan.resume and plan.fresh.
void choose_worker(Plan& plan, const Settings& settings, const Machine& machine);

}  // namespace ddprun
