// Formats a running job's status as OpenMetrics text, for Prometheus and the text files of node_exporter. Pure.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace ddprun {

// `job` and `nodes` are statuses from JobStatus (job_status.hpp), the latter of each node that answered. The text ends with "#
// EOF". An unknown value has no line. If two nodes report the same series, the one of the newer round is used.
std::string openmetrics_of(const nlohmann::json& job, std::vector<nlohmann::json> nodes);

}  // namespace ddprun
