// Formats the status of a running job as OpenMetrics text, for Prometheus and for node_exporter's text files. The code is pure:
// no I/O, no clock.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace ddprun {

// `job` is the status of the job and `nodes` the status of each node that answered, all from JobStatus (job_status.hpp). An
// unknown value gets no line. If two nodes report the same series, the value of the newer round is used. "# EOF" ends the text.
std::string openmetrics_of(const nlohmann::json& job, std::vector<nlohmann::json> nodes);

}  // namespace ddprun
