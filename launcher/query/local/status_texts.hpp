// Formats a running job's status (job_status.hpp) as texts for users. The subcommands print them as a table, and the page of
// `ddprun report --follow` shows the same texts. The status comes from an agent, which may be of a different version. So a
// value of an unexpected type counts as unknown. The code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace ddprun {

// Returns the value of `key` in a JSON object from an agent, safe to print; "" or 0 if the key is missing or has a different
// type.
std::string text_of(const nlohmann::json& object, const char* key);
std::int64_t number_of(const nlohmann::json& object, const char* key);
double seconds_of(const nlohmann::json& object, const char* key);

// Returns a text such as "87 %, 12.1 of 79.2 GiB" for a device (launcher/query/local/gpus_of_job.hpp), or an empty text if
// nothing is known.
std::string gpu_text(const nlohmann::json& gpu);

// Returns a text such as "running for 2 min 03 s, 1 of 3 restarts used".
std::string job_state_text(const nlohmann::json& status);

// Returns the value of `key` from the first node that has it; null if no node has it.
const nlohmann::json& first_with(const std::vector<nlohmann::json>& nodes, const char* key);

// Returns the rank of the node's first worker, from the status of that node; 0 if unknown.
int first_rank_here(const nlohmann::json& status);

// A worker's row in a table. Unknown values are empty. A worker that has ended has no `silent`, `own` and `waiting`.
struct WorkerTexts {
  std::string rank, pid;
  std::string state;    // the phase or the end, such as "running" or "exit code 3"
  std::string step;     // number of finished steps
  std::string silent;   // time since the last message
  std::string own;      // the rank's own time per step, such as "41.2 ms"
  std::string waiting;  // time per step in which the rank waits for other ranks
  std::string memory;   // resident memory
  std::string gpu;
};
WorkerTexts worker_texts(const nlohmann::json& worker);

}  // namespace ddprun
