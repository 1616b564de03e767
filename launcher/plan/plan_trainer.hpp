// The choices of a train.json: the checkpoint from which its run resumes, live recovery of lost workers, which a loop in C++
// has as well, standbys, and ddptrain as the workers' program. plan.cpp calls these functions in its order. They read options
// and look at files, start and write nothing, and throw UsageError.
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
// as an absolute path, if it is neither auto nor never. Reads plan.run_dir and plan.fresh.
void choose_resume(Plan& plan, const Settings& settings, const std::filesystem::path& named);

// Refuses a checkpoint that does not exist. In a job on many machines another node may have it: its workers send the state
// then, and refuse the checkpoint when no node has it. Reads plan.rendezvous.
void require_resume_path(const Plan& plan, const Settings& settings);

// Reads --recovery into plan.regroup_limit, and records its source. Reads workers and rendezvous. `through_nccl`: each worker
// has a GPU of its own.
void choose_recovery(Plan& plan, const Settings& settings, bool through_nccl);

// Of a program or script. One with a loop of its own may say that it can regroup (sdk/include/ddprun/job.hpp); for others this
// changes nothing.
void choose_recovery_of_program(Plan& plan, const Settings& settings);

// Reads --standby into plan.standbys, and records its source. It refuses any job in which no standby could ever take over, also
// a script's, so call it for every plan. Reads workers, rendezvous, restarts, recovery, device and placement.
void choose_standbys(Plan& plan, const Settings& settings);

// Writes the program that --worker or the config names to plan.worker, and records its source. The config's own keys follow
// from it, so this comes before the config is read; `by_config` is an absolute path, or "".
void choose_own_worker(Plan& plan, const Settings& settings, const std::string& by_config, const Machine& machine,
                       const std::filesystem::path& cwd);

// Writes the argv of a worker to plan.command: of plan.worker, else of ddptrain beside ddprun or on PATH. It refuses --worker
// for a script, so call it for every plan. Reads plan.run_dir, plan.resume and plan.fresh.
void choose_worker(Plan& plan, const Settings& settings, const Machine& machine);

}  // namespace ddprun
