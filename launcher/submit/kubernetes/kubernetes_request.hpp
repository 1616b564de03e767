// Reads and checks the options of `ddprun submit --k8s`. launcher/commands/subcommand_submit.cpp calls it. This code does no
// input or output: the caller passes the options and the files as functions.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/submit/kubernetes/kubernetes_manifests.hpp"

namespace ddprun {

struct KubernetesRequest {
  // Returns the value of an option, such as "--image"; nullopt if it is not given. A flag that is given has the value "".
  std::function<std::optional<std::string>(std::string_view option)> option;
  // Arguments after the options of submit: options of ddprun, the program, and its arguments.
  std::span<const std::string> words;
  // Returns the content of a file on this machine; nullopt if the file does not exist. Throws UsageError for other errors.
  std::function<std::optional<std::string>(const std::string& file)> read_file;
};

// The options that kubernetes_job() reads, separated by spaces.
inline constexpr std::string_view kKubernetesOptions =
    "--kind --name --namespace --image --nodes --gpus --cpus --memory --shm --run-dir --claim --storage --secret --queue "
    "--spot "
    "--grace";

// Returns the job with all defaults. A train.json that exists on this machine becomes part of the manifests. Throws UsageError
// for an option or a program that cannot work.
KubernetesJob kubernetes_job(const KubernetesRequest& request);

}  // namespace ddprun
