// Selects the running job for a subcommand, and parses its arguments. Shared by ps, status, top, stop, logs, stacks and attach.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/control/control_client.hpp"

namespace ddprun {

inline constexpr int kTailWhenFollowed = 10;  // `ddprun logs -f` begins with this many lines of each file

// The arguments of a subcommand that works on a running job. Throws UsageError with `usage` for an unsupported argument.
struct JobRequest {
  std::string job;                 // empty: the only job that runs on this machine
  std::optional<int> rank;         // --rank N
  std::vector<std::string> flags;  // the given flags among `allowed`, with dashes
  std::optional<int> tail;         // --tail N
  bool help = false;
  bool has(const std::string& flag) const;
};
JobRequest parse_job_request(std::span<const std::string> args, std::span<const std::string_view> allowed,
                             const std::string& usage);

// Several agents of one job may run on this machine. A query to all nodes reaches the same nodes through any of them.
enum class Agents { kOne, kAnyOfTheJob };
inline Agents agents_of(const JobRequest& request) {
  return request.has("--here") ? Agents::kOne : Agents::kAnyOfTheJob;
}

// `word` is an agent's pid, a run directory or a title; empty: the only running job. Throws UsageError with a list of the
// running jobs.
RunningJob chosen_job(const std::string& word, Agents agents = Agents::kOne);

// One line per job: pid, title, state, workers, time, run directory.
std::string table_of(const std::vector<RunningJob>& jobs);

// Human-readable status of the job and its workers. `nodes`: the status of every node that answered, at least one.
std::string status_text(const RunningJob& job, const std::vector<nlohmann::json>& nodes);

// "87 %, 12.1 of 79.2 GiB" for a device (launcher/commands/gpus_of_job.hpp); empty if nothing is known.
std::string gpu_text(const nlohmann::json& gpu);

// A value of an agent's JSON object, safe to print; "" and 0 if the key is missing or has another type.
std::string text_of(const nlohmann::json& object, const char* key);
std::int64_t number_of(const nlohmann::json& object, const char* key);

// Adds the prefix to each line; the lines end with '\n'.
std::string prefixed(std::string_view lines, const std::string& prefix);

// Returns when the process has ended, or immediately if it has ended already.
void wait_for_end_of(pid_t process);
// The same with a timeout. Returns whether the process has ended. Waits without limit if `time` is negative.
bool ends_within(std::chrono::milliseconds time, pid_t process);

}  // namespace ddprun
