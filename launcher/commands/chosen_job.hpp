// Which running job a subcommand means, and its words: ps, status, top, stop, logs, stacks and attach share them.
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

inline constexpr int kTailWhenFollowed = 10;  // `ddprun logs -f` begins with so many lines of each file

// The arguments of a subcommand that works on a running job. Throws UsageError with `usage` for an argument that it does not
// take.
struct JobRequest {
  std::string job;                 // empty: the only one that runs here
  std::optional<int> rank;         // --rank N
  std::vector<std::string> flags;  // those of `allowed` that were given, with dashes
  std::optional<int> tail;         // --tail N
  bool help = false;
  bool has(const std::string& flag) const;
};
JobRequest parse_job_request(std::span<const std::string> args, std::span<const std::string_view> allowed,
                             const std::string& usage);

// Several agents of one job may run on this machine. A question to all nodes reaches the same nodes through any of them.
enum class Agents { kOne, kAnyOfTheJob };
inline Agents agents_of(const JobRequest& request) {
  return request.has("--here") ? Agents::kOne : Agents::kAnyOfTheJob;
}

// `word` is an agent's pid, a run directory or a title; empty: the only running job. Throws UsageError that lists what runs.
RunningJob chosen_job(const std::string& word, Agents agents = Agents::kOne);

// One line a job: pid, title, state, workers, time, run directory.
std::string table_of(const std::vector<RunningJob>& jobs);

// The job's figures and its workers, for people. `nodes`: the status of each node that has told it, at least one.
std::string status_text(const RunningJob& job, const std::vector<nlohmann::json>& nodes);

// "87 %, 12.1 of 79.2 GiB" of a device (launcher/commands/gpus_of_job.hpp); empty where nothing is known.
std::string gpu_text(const nlohmann::json& gpu);

// What an object of an agent holds, safe to print; "" and 0 where the key is missing or of another type.
std::string text_of(const nlohmann::json& object, const char* key);
std::int64_t number_of(const nlohmann::json& object, const char* key);

// Each line, which ends with '\n', with the prefix before it.
std::string prefixed(std::string_view lines, const std::string& prefix);

// Returns when the process is gone, or at once when it is gone already.
void wait_for_end_of(pid_t process);
// The same, after that time at the latest. Whether the process is gone. A negative time: as long as it takes.
bool ends_within(std::chrono::milliseconds time, pid_t process);

}  // namespace ddprun
