// Implementation of failure_evidence.hpp.
#include "launcher/agent/failure_evidence.hpp"

#include <cstdint>
#include <string_view>

#include "common/system/host_name.hpp"
#include "launcher/guardian/spawn.hpp"
#include "launcher/output/worker_output_files.hpp"
#include "launcher/workers/error_file_reader.hpp"
#include "launcher/workers/exec_reason.hpp"

namespace ddprun {

void add_evidence(Failure& failure, const WorkerOutput& output) {
  if (failure.local_rank < 0) return;  // another node's
  failure.host = host_name();
  if (failure.cause == Cause::kSpawn) return;
  failure.stderr_tail = output.stderr_tail(failure.local_rank);
  failure.log_path = output.stderr_log(failure.local_rank).string();
  const auto shown = static_cast<std::int64_t>(failure.stderr_tail.size());
  const std::int64_t lines = shown > 0 ? line_count(failure.log_path) : 0;
  if (lines >= shown && shown > 0) failure.log_line = lines - shown + 1;
}

void hand_on(const Failure& first, std::span<const std::string> inherited_environment) {
  constexpr std::string_view kName = "TORCHELASTIC_ERROR_FILE=";
  if (first.error_file.empty()) return;
  for (const std::string& variable : inherited_environment) {
    if (!variable.starts_with(kName) || variable.size() == kName.size()) continue;
    const int code = !first.status ? 0 : first.status->signal != 0 ? -first.status->signal : first.status->code;
    copy_error_file(first.error_file, variable.substr(kName.size()), code);
    return;
  }
}

std::string why_not_started(const guardian::Notice& notice, const std::string& program) {
  const bool made = notice.kind == guardian::Notice::Kind::kExited;
  const auto stage = made ? static_cast<SpawnError::Stage>(notice.stage) : SpawnError::Stage::kExec;
  const std::string reason =
      made && stage == SpawnError::Stage::kExec ? reason_of_exec_error(notice.error, program) : std::string();
  return describe(SpawnError{notice.worker, stage, notice.error}, program) + (reason.empty() ? "" : ": " + reason);
}

}  // namespace ddprun
