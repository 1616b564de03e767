// A running job's status as OpenMetrics text, for Prometheus and the text files of node_exporter. Pure.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace ddprun {

// `job` and `nodes`: what JobStatus tells (job_status.hpp), the latter of each node that has told it. Ends with "# EOF". What
// is not known has no line, and what two nodes tell has that of the newest round.
std::string openmetrics_of(const nlohmann::json& job, std::vector<nlohmann::json> nodes);

}  // namespace ddprun
