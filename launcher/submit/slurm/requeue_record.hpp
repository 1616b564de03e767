// Parses and formats requeues.json in the run directory, which has the counts of requeue_decision.hpp. Also parses report.json
// for the facts about the run that the decision needs. The code is pure: the caller reads and writes the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/submit/slurm/requeue_decision.hpp"

namespace ddprun {

std::filesystem::path requeue_file(const std::filesystem::path& run_dir);

// Returns an empty record if the text is not a record of this version. The next decision then starts with full budgets.
RequeueRecord parse_requeue_record(std::string_view text);
std::string requeue_text(const RequeueRecord& record);

// Facts of a report.json.
struct ReportedRun {
  std::int64_t published = 0;    // number of published checkpoints
  std::optional<double> save_s;  // duration of the newest save
  // Exit code of the newest start; nullopt if the newest start is not the given start of Slurm's job, or has not ended.
  std::optional<int> exit_code;
  bool is_workers_code = false;  // true if a worker exited with this code; false if ddprun chose the code
};

// A start of a job in Slurm: the job's id and SLURM_RESTART_COUNT.
struct SlurmStartId {
  std::string job;
  int restarts = 0;
};

// Skips values that are missing or have an unexpected type. `start` is the start whose exit code is needed; nullopt if no exit
// code is needed.
ReportedRun parse_reported_run(std::string_view text, const std::optional<SlurmStartId>& start);

}  // namespace ddprun
