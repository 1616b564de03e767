// `ddprun submit`: submits a job to the scheduler that the first argument names. launcher/submit contains the code for each
// scheduler. run_subcommand() calls submit_job().
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/bounded/bounded_file.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/options/submit_specs.hpp"
#include "launcher/submit/kubernetes/kubernetes_request.hpp"
#include "launcher/submit/kubernetes/kubernetes_submit.hpp"
#include "launcher/submit/slurm/slurm_request.hpp"
#include "launcher/submit/slurm/slurm_submission.hpp"
#include "rendezvous/identity/token_search.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxConfigBytes = 1 << 20;

int to_slurm(const std::vector<std::string>& args) {
  SubmitWords words = split_submit_words(args);
  if (words.has("help")) {
    print(help_of(kSubmitToSlurm));
    return 0;
  }
  return words.has("after") ? decide_after_slurm_job(words) : submit_to_slurm(std::move(words));
}

std::optional<std::string> text_if_present(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return std::nullopt;
  return read_bounded(file, kMaxConfigBytes, "a train.json");
}

int to_kubernetes(const std::vector<std::string>& args) {
  const SubcommandArguments arguments(kSubmitToKubernetes, args);
  if (arguments.help()) {
    print(help_of(kSubmitToKubernetes));
    return 0;
  }
  if (auto token = take_token_variable()) const Token wiped(std::move(*token));  // programs that we start must not inherit it
  const auto option = [&](std::string_view name) -> std::optional<std::string> {
    return arguments.has(name) ? arguments.value(name).value_or("") : std::optional<std::string>();
  };
  const KubernetesJob job = kubernetes_job({.option = option, .words = arguments.words(), .read_file = text_if_present});
  submit_to_kubernetes(job, arguments.has("--dry-run") ? SubmitMode::kPrint : SubmitMode::kApply);
  return 0;
}

}  // namespace

int submit_job(const SubcommandArguments& arguments) {
  const std::vector<std::string>& args = arguments.words();
  if (!args.empty() && args.front() == "--slurm") return to_slurm(args);
  if (!args.empty() && args.front() == "--k8s") return to_kubernetes(args);
  arguments.refuse("the first argument must name the scheduler: --slurm or --k8s");
}

}  // namespace ddprun
