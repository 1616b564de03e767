#include "launcher/submit/kubernetes/kubernetes_submit.hpp"

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/base/split.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/print.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/machine/program_output.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = 4 << 20;
constexpr OutputLimits kKubectlLimits{.time = std::chrono::minutes(5)};

void write_new_file(const fs::path& file, const std::string& content) {
  std::error_code error;
  if (fs::exists(file, error)) {
    if (read_bounded(file, kMaxFileBytes, "a manifest") == content) return;
    throw UsageError(file.string() +
                     " exists and has a different content, so it was not replaced: apply it with kubectl apply -f " +
                     file.string() + ", or remove it, or choose another --name");
  }
  try {
    write_file_atomically(file, content);
  } catch (const std::system_error& failure) {
    throw UsageError("cannot write the manifests: " + std::string(failure.what()) +
                     "; change to a folder that you can write to, or use --dry-run to print them");
  }
}

std::string end_text(const ProgramOutput& done) {
  switch (done.end) {
    case ProgramOutput::End::kExited:
      return "ended with exit code " + std::to_string(done.number);
    case ProgramOutput::End::kSignalled:
      return "was killed by signal " + std::to_string(done.number);
    case ProgramOutput::End::kTimedOut:
      return "did not end within 5 minutes";
    case ProgramOutput::End::kOutputTooLarge:
      return "printed too much output";
    case ProgramOutput::End::kNotStarted:
      break;
  }
  return "could not be started: " + std::generic_category().message(done.number);
}

void apply(const fs::path& file) {
  const std::string command = "kubectl apply -f " + file.string();
  const auto kubectl = find_on_path("kubectl");
  if (!kubectl) {
    throw UsageError("kubectl is not on PATH, so the job was not started. Its manifests are in " + file.string() +
                     ": install kubectl and run " + command + ", here or on another machine");
  }
  const ProgramOutput done = output_of({kubectl->string(), "apply", "-f", file.string()}, kKubectlLimits);
  print(done.text);
  if (done.end == ProgramOutput::End::kExited && done.number == 0) {
    std::fputs(done.error_output.c_str(), stderr);  // warnings
    return;
  }
  std::string reason = printable(without_spaces_around(done.error_output));
  if (!reason.empty()) reason = ": " + reason;
  throw UsageError(command + " " + end_text(done) + reason + ". The manifests are in " + file.string() +
                   ": fix the problem and run the command again");
}

}  // namespace

void submit_to_kubernetes(const KubernetesJob& job, SubmitMode mode) {
  const std::string manifests = kubernetes_manifests(job);
  if (mode == SubmitMode::kPrint) return print(manifests);
  const fs::path file = job.name + ".yaml";
  write_new_file(file, manifests);
  apply(file);
  if (job.kind == KubernetesJob::Kind::kRuntime) return;
  std::fprintf(stderr, "ddprun: submitted; the first lines of %s show how to watch, stop and resume the job\n", file.c_str());
}

}  // namespace ddprun
