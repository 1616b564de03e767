// Examines this machine for a job. `ddprun doctor` prints the checks. With --preflight, ddprun does not start the job if a
// check reports an error.
//
// The table has this order: programs and their versions, names and interfaces, limits, folders, GPUs, data.
// launcher/doctor/nodes compares the nodes of a job. Checks that compute, such as an all-reduce or a bitwise comparison of
// results, are not implemented yet.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "launcher/doctor/observe_programs.hpp"
#include "launcher/doctor/verdicts/check.hpp"
#include "launcher/doctor/verdicts/job_needs.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun::doctor {

struct Examination {
  JobNeeds needs{};
  std::optional<TrainConfig> config{};
  bool has_custom_worker = false;   // a worker program of the user replaces ddptrain
  std::filesystem::path python{};   // the interpreter of a script; empty if the job has none
  std::filesystem::path run_dir{};  // empty if the job has no run directory
  bool collects_facts = false;      // true: the checks contain the facts of this node too (node_facts.hpp)
};

Examination examination_of(const Plan& plan);

// Time limits, measured from `start`. They are kept even if drivers, servers or disks do not answer. The quick examination
// ends within kQuickLimit. The full examination also starts ddptrain, imports torch and reads samples of the data. These three
// subjects have the limit kFullLimit.
inline constexpr std::chrono::milliseconds kQuickLimit{2'500};
inline constexpr std::chrono::milliseconds kFullLimit{70'000};
Checks examine(const Examination& job, Depth depth, std::chrono::steady_clock::time_point start);

// Makes a quick examination for --preflight. Returns its warnings, one line each. Throws UsageError with all errors.
std::vector<std::string> preflight(const Plan& plan);

}  // namespace ddprun::doctor
