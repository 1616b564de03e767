// One request to Kubeflow's status server. The agent starts a separate process for it (progress_poster.hpp) for two reasons.
// The request blocks, and it needs OpenSSL, which the agent of a job on one machine does not load.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

// The first argument of ddprun that starts this process. It is followed by the JSON of the status.
inline constexpr std::string_view kPostStatusCommand = "internal-post-kubeflow-status";

// Posts the status to $KUBEFLOW_TRAINER_SERVER_URL. The token is read from the file $KUBEFLOW_TRAINER_SERVER_TOKEN for each
// request, because Kubernetes replaces it every hour. Returns the problem, or "" on success. The call blocks without a limit.
std::string post_kubeflow_status(const std::string& body);

// Returns true if Kubeflow has set the three variables of its status server in this process's environment.
bool has_kubeflow_server();

}  // namespace ddprun
