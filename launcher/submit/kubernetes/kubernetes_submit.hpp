// Prints the manifests of a job, or writes them to a file and runs kubectl. The subcommand submit calls it.
#pragma once

#include "launcher/submit/kubernetes/kubernetes_manifests.hpp"

namespace ddprun {

enum class SubmitMode { kPrint, kApply };

// kPrint prints the manifests. kApply writes them to NAME.yaml in the current folder, and runs `kubectl apply -f NAME.yaml`. An
// existing file with a different content is not replaced. Throws UsageError if the file cannot be written, or if kubectl is
// missing or fails. The file is then kept, so the user can apply it later.
void submit_to_kubernetes(const KubernetesJob& job, SubmitMode mode);

}  // namespace ddprun
