// `ddprun report --html --follow`: rewrites the page of a running job until the job ends. subcommand_report.cpp calls it.
//
// The page is a file and not a server, because on a shared machine every user could connect to a port. The job's agent sends
// the data through its control socket: the status with the GPUs, and the current report. The file of the report is not used,
// since it is only written when a round starts or fails. The curves come from metrics.jsonl. The page is rewritten after an
// event: inotify reports a change of report.json or metrics.jsonl, and a pidfd reports the end of the agent
// (rewrite_pace.hpp).
//
// When the agent has ended, the last page is made from the file of the report. The last page does not reload itself. If the
// agent was killed, its guardian completes this file a moment later, so the follower waits for that.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "launcher/query/local/control_client.hpp"

namespace ddprun {

struct FollowedRun {
  std::filesystem::path report;   // report.json; empty if no run was found
  std::optional<RunningJob> job;  // nullopt: the job is not running on this machine
};

// Finds a run with its job. `word` is a run directory, a log folder, or the PID or title of a running job. "" means the running
// job, or the newest run if no job is running. Throws UsageError, for example if several jobs are running.
FollowedRun find_followed_run(const std::string& word);

// Returns the file that is replaced at each rewrite: the page that the user has named, or its target if the page is a symbolic
// link. Throws UsageError if it is not a regular file.
std::filesystem::path replaceable_page(const std::filesystem::path& named);

// Rewrites the page until the job has ended or a signal arrives. `first_written` is called after the first page was written.
// Returns the exit code. `run.job` must be set. Throws std::system_error if the page cannot be written.
int follow_report(FollowedRun run, const std::filesystem::path& page, const std::function<void()>& first_written);

}  // namespace ddprun
