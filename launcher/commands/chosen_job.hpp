// Selects the running job for a subcommand. Shared by ps, status, top, stop, logs, stacks and attach.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/commands/subcommand.hpp"
#include "launcher/query/local/control_client.hpp"
#include "launcher/query/local/job_nodes.hpp"
#include "launcher/query/local/status_texts.hpp"

namespace ddprun {

inline constexpr int kTailWhenFollowed = 10;  // number of lines of each file that `ddprun logs -f` shows first

// The arguments of a subcommand that works on a running job. Throws UsageError.
class JobRequest {
 public:
  explicit JobRequest(const SubcommandArguments& arguments)
      : job(arguments.only_word("JOB")),
        rank(arguments.number("--rank")),
        tail(arguments.number("--tail")),
        arguments_(arguments) {}
  bool has(std::string_view flag) const { return arguments_.has(flag); }

  const std::string job;  // may be empty if only one job is running on this machine
  const std::optional<int> rank;
  const std::optional<int> tail;

 private:
  const SubcommandArguments& arguments_;
};

// Which agent a subcommand needs if one job has several agents on this machine. kAnyOfTheJob: a query to all nodes, which any
// of these agents can forward. kOne: a query to one agent, so the user must select it.
enum class Agents { kOne, kAnyOfTheJob };
inline Agents agents_of(const JobRequest& request) {
  return request.has("--here") ? Agents::kOne : Agents::kAnyOfTheJob;
}

// `word` is an agent's pid, a run directory or a job's title. An empty word selects the only running job. Throws UsageError
// with a list of the running jobs.
RunningJob chosen_job(const std::string& word, Agents agents = Agents::kOne);

// With --slurm, runs the subcommand on a node of that Slurm job, and returns the exit code. Returns nullopt if the option is
// not given.
std::optional<int> answer_of_slurm_job(const SubcommandArguments& arguments, const std::string& subcommand);

// With --hosts, replaces this process by an ssh client that runs the subcommand on the first of these hosts. Returns only if
// the option is not given.
void answer_on_first_host(const SubcommandArguments& arguments, const std::string& subcommand);

// One line per job: pid, title, state, workers, time, run directory.
std::string table_of(const std::vector<RunningJob>& jobs);

// Returns true if the job has several nodes and the request is not limited to this node.
bool queries_all_nodes(const RunningJob& job, const JobRequest& request);

// Returns the human-readable status of the job and its workers. `nodes` contains the status of every node that answered, and
// must not be empty.
std::string status_text(const RunningJob& job, const std::vector<nlohmann::json>& nodes);
// Returns the human-readable status of all nodes, or of this node alone if no other node answers.
std::string status_of_all(const RunningJob& job, const ClusterAnswers& nodes);

// Adds the prefix to each line. Each line in `lines` must end with '\n'.
std::string prefixed(std::string_view lines, const std::string& prefix);

// Blocks until the process has ended. Returns immediately if the process has already ended.
void wait_for_end_of(pid_t process);
// Waits until the process has ended or `time` has passed; without limit if `time` is negative. Returns whether the process has
// ended.
bool ends_within(std::chrono::milliseconds time, pid_t process);

}  // namespace ddprun
