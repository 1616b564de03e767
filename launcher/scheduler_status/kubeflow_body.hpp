// Converts the progress of a job to the format of Kubeflow's status server (KEP-2779 of kubeflow/trainer). Also parses the
// server's address and token. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/metric.hpp"
#include "launcher/events/progress.hpp"

namespace ddprun {

// Limits of the server. Metrics beyond them are left out.
inline constexpr std::size_t kMaxStatusMetrics = 256;
inline constexpr std::size_t kMaxStatusText = 64;  // maximum number of bytes of a metric's name or value
inline constexpr std::size_t kMaxStatusBytes = 64 << 10;

// Returns the JSON of a request: percentage, remaining seconds and metrics, each only if it is known. `evaluation`: the newest
// metrics of an evaluation; their names get the prefix "eval_". `realtime_ns`: the time of the status.
std::string kubeflow_status(const ProgressShown& progress, const MetricList& evaluation, std::int64_t realtime_ns);

struct HttpsUrl {
  std::string host;  // without brackets, if it is an IPv6 address
  std::string port = "443";
  std::string path = "/";  // path and query of the URL
};

// Returns nullopt if the text is not an https URL, or if it contains a user name, spaces or control characters.
std::optional<HttpsUrl> parse_https_url(std::string_view text);

// Returns the content of a bearer token file, without the line end. Returns nullopt if the content is empty, too long, or has
// characters that a header cannot contain.
std::optional<std::string> bearer_token(std::string_view file_content);

}  // namespace ddprun
