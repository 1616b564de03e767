// What only a train.json has: the checkpoint that its run goes on from, live recovery of lost workers, standbys, and ddptrain
// as the program of its workers. plan.cpp calls these functions, in its order. They read options and look at files, start and
// write nothing, and throw UsageError.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

inline constexpr int kMostWorkers = 4096;  // on one machine, standbys too

// --resume into plan.resume and plan.resume_from; its source and that of --fresh. `named`: its value as an absolute path, for
// one that is neither auto nor never. Reads plan.run_dir and plan.fresh.
void choose_resume(Plan& plan, const Settings& settings, const std::filesystem::path& named);

// Refuses a checkpoint that is not there. In a job on many machines another node may have it: its workers send the state, and
// they refuse the checkpoint when no node has it. Reads plan.rendezvous.
void require_resume_path(const Plan& plan, const Settings& settings);

// --recovery into plan.regroup_limit, with its source. Reads workers and rendezvous.
// `through_nccl`: each worker has a GPU of its own.
void choose_recovery(Plan& plan, const Settings& settings, bool through_nccl);

// --standby into plan.standbys, with its source. Refuses each job in which no standby could ever take over, a script's too, so
// it is called for every plan. Reads workers, rendezvous, restarts, recovery, device and placement.
void choose_standbys(Plan& plan, const Settings& settings);

// argv of a worker into plan.command: the program that --worker names, which speaks ddptrain's command line and the worker
// channel of this build, or else ddptrain from beside ddprun or from PATH. Refuses --worker of a script, so it is called for
// every plan. Reads plan.run_dir, plan.resume and plan.fresh.
void choose_worker(Plan& plan, const Settings& settings, const Machine& machine, const std::filesystem::path& cwd);

}  // namespace ddprun
