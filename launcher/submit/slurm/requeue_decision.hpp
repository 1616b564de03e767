// Decides whether a job returns to the scheduler's queue after its agents have ended. Budgets limit the number of requeues.
// The Slurm batch file calls `ddprun submit --slurm --after CODE`, which uses decide_requeue(). The code is pure: no I/O,
// no clock.
//
// The problem: an exit code alone does not determine whether another start helps. Exit code 85 means that the job has saved
// after a signal. After a preemption this may happen any number of times, since each preemption has a cause outside of the job.
// A time limit is different. If a start reaches its time limit without a newer checkpoint, the next start does the same work
// and reaches the same limit. Without a budget, the job would use the cluster until a user notices it.
//
// The rules, in this order:
//
//   exit code 0                                  the job is complete
//   2, 82 to 84, 87, 88, 90                      end: another start would fail too, or a newer invocation continues
//   the job has Requeue=0 (ddprun stop, user)    end
//   85, 86, 129, 130, 143 at the time limit      requeue; without a newer checkpoint at most `timeouts` times in a row
//   85, 86, 129, 130, 143 at another time        requeue: a preemption
//   anything else                                a failure: requeue, at most `failures` times for the whole job
//
// Example: the budget is 3 time limits without a newer checkpoint. Each start reaches its time limit. S is a start with a newer
// checkpoint, and - is a start without one. After the starts S S - - S - - - the job is requeued for the last time. If the next
// start has no newer checkpoint, the job ends.
//
// If a worker exited with 85, 86, 129, 130 or 143, this is a failure. The codes in the second row end the job even if a worker
// exited with them.
//
// A script need not report its checkpoints. But its job ends with 85 only after all ranks have saved. So this code counts as a
// newer checkpoint of a script.
//
// The counts are kept in the run directory (requeue_record.hpp): each start of a job is a new process, often on another
// machine. We first tried SLURM_RESTART_COUNT as the count. It also counts preemptions, and is 0 again after a new sbatch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/exit_code.hpp"

namespace ddprun {

// The counts of one job, and the progress of the run at the previous decision.
struct RequeueRecord {
  std::string job{};  // the scheduler's job, such as "slurm 17"; the counts of another job are not used
  int failures = 0;
  int timeouts = 0;               // number of consecutive starts that reached the time limit without a newer checkpoint
  int requeues = 0;               // number of requeues of the job in total
  std::int64_t published = 0;     // number of checkpoints in report.json
  std::int64_t newest_step = -1;  // step of the newest checkpoint in the run directory; -1: none
  bool operator==(const RequeueRecord&) const = default;
};

struct RequeueLimits {
  int failures = 3;
  int timeouts = 3;
};

// Describes how one start of the job has ended.
struct StartEnd {
  std::string job{};
  int code = 0;
  bool is_workers_code = false;  // true if a worker exited with this code; false if ddprun chose the code
  bool of_script = false;        // the program is not a train.json, so ddprun does not know its checkpoints
  // seconds until the time limit; nullopt: unknown; the time limit then counts as the reason of the stop
  std::optional<double> seconds_left{};
  double signal_before_s = 0;   // the scheduler sends its signal this long before the time limit
  bool requeue_allowed = true;  // false: the user has stopped the job, or has switched requeues off
  std::int64_t published = 0;
  std::int64_t newest_step = -1;
};

struct RequeueDecision {
  bool requeue = false;
  bool uses_budget = false;  // the requeue is counted, so it is allowed only if the record can be written
  int exit_code = 0;         // exit code of the batch script, if the job ends
  RequeueRecord record;
  std::string why;  // one line for the log, such as "preempted: ..."
};

RequeueDecision decide_requeue(const RequeueRecord& before, const StartEnd& end, const RequeueLimits& limits);

// The exit code of a batch script that requests a requeue where scontrol is missing (RequeueExit in slurm.conf).
inline constexpr int kRequeueExitCode = 85;

// Returns the exit code of a batch script whose job ends: `code`, or `otherwise` if `code` would request a requeue.
int final_code(int code, ExitCode otherwise);

}  // namespace ddprun
