// Slurm's notation for durations, and the check that a time limit leaves enough time to train and to save. The code is pure:
// no I/O, no clock.
//
// The problem: Slurm sends SIGTERM to the agents some seconds before the time limit (--signal). The agents then have
// --shutdown-timeout seconds to save. A save that takes longer is lost when Slurm kills the job, and the next start repeats
// all work since the last save. An example is a time limit of 1 h, a signal 120 s before its end, and a save of 150 s. The job
// would train for 58 min again and again, without any progress. Such a job is refused before it waits in the queue.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

inline constexpr std::chrono::seconds kNoTimeLimit = std::chrono::seconds::max();

// Parses a duration in the forms of sbatch --time: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S, or UNLIMITED (kNoTimeLimit). Output of
// scontrol has the same forms. Returns nullopt for any other text.
std::optional<std::chrono::seconds> parse_slurm_time(std::string_view text);

struct SlurmTimes {
  std::optional<std::chrono::seconds> limit{};  // --time; nullopt: the limit of the partition, which is unknown here
  std::chrono::seconds signal_before{120};      // time from Slurm's signal to the time limit
  double shutdown_s = 90;                       // --shutdown-timeout: the time from the signal to SIGKILL
  std::optional<double> save_s{};               // measured duration of the newest save; nullopt if none is recorded
};

// Returns the default of --shutdown-timeout: three quarters of `signal_before`. The rest, at least 5 s, is the time in which
// the agents end.
std::chrono::seconds default_shutdown(std::chrono::seconds signal_before);

// Returns one line with the first reason why the times cannot work; empty if they can.
std::string time_problem(const SlurmTimes& times);

// Returns a warning if Slurm's early signal may leave hardly any time to train; empty otherwise.
std::string time_warning(const SlurmTimes& times);

// Slurm checks time limits in intervals, so it may send a signal this much too early (sbatch(1), --signal).
inline constexpr std::chrono::seconds kEarlySignal{60};

}  // namespace ddprun
