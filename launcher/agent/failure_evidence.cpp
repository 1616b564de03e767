#include "launcher/agent/failure_evidence.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "common/system/host_name.hpp"
#include "launcher/diagnosis/oom_verdict.hpp"
#include "launcher/guardian/spawn.hpp"
#include "launcher/workers/error_file_reader.hpp"
#include "launcher/workers/exec_reason.hpp"

namespace ddprun {

namespace {

// Adds this node's host name, stderr lines and log path to a failure. Does nothing for a failure of another node.
void add_evidence(Failure& failure, const WorkerOutput& output) {
  if (failure.local_rank < 0) return;  // the failed worker runs on another node
  failure.host = host_name();
  if (failure.cause == Cause::kSpawn) return;
  failure.stderr_tail = output.stderr_tail(failure.local_rank);
  failure.log_path = output.stderr_log(failure.local_rank).string();
  const auto shown = static_cast<std::int64_t>(failure.stderr_tail.size());
  const std::int64_t lines = shown > 0 && !failure.log_path.empty() ? output.stderr_lines(failure.local_rank) : 0;
  if (lines >= shown && shown > 0) failure.log_line = lines - shown + 1;
}

void forward_error_file(const Failure& first, FileQueue& files, std::span<const std::string> inherited_environment) {
  constexpr std::string_view kName = "TORCHELASTIC_ERROR_FILE=";
  if (first.error_file.empty()) return;
  for (const std::string& variable : inherited_environment) {
    if (!variable.starts_with(kName) || variable.size() == kName.size()) continue;
    const int code = !first.status ? 0 : first.status->signal != 0 ? -first.status->signal : first.status->code;
    files.add([from = first.error_file, to = variable.substr(kName.size()), code] { copy_error_file(from, to, code); });
    return;
  }
}

}  // namespace

void add_evidence(RoundFailed& failed, const WorkerOutput& output, FileQueue& files,
                  std::span<const std::string> inherited_environment) {
  add_evidence(failed.first, output);
  for (Failure& failure : failed.consequences) add_evidence(failure, output);
  if (failed.decision == RoundFailed::Decision::kGiveUp) forward_error_file(failed.first, files, inherited_environment);
}

void add_stderr_errors(agent_event::WorkerExited& ended, const WorkerOutput& output, const Plan& plan) {
  const std::vector<std::string> tail = output.stderr_tail(ended.rank);
  const auto memory =
      std::find_if(tail.rbegin(), tail.rend(), [](const std::string& line) { return reports_out_of_memory(line); });
  if (memory != tail.rend()) ended.out_of_memory = *memory;
  ended.exception = output.last_exception(ended.rank);
  const bool python = plan.kind == Plan::Kind::kPython || plan.kind == Plan::Kind::kModule;
  if (python && !plan.command.empty() && ended.exception.starts_with("ModuleNotFoundError: ")) {
    const std::size_t end = std::min(ended.exception.find('\n'), ended.exception.size());
    ended.exception.insert(end, "; its Python is " + plan.command.front());
  }
}

std::optional<ErrorFile> find_error_file(FileQueue& files, const std::filesystem::path& file) {
  if (file.empty()) return std::nullopt;
  return files.query([file] { return read_error_file(file); }).value_or(std::nullopt);
}

agent_event::WorkerExited worker_exit_event(int rank, const guardian::Notice& notice) {
  const ExitStatus status{.code = notice.code, .signal = notice.signal, .core_dumped = notice.core_dumped != 0};
  agent_event::WorkerExited ended{rank, notice.pid, status, notice.time_ns};
  ended.memory = judge_memory(notice.memory, status);
  return ended;
}

void add_worker_evidence(agent_event::WorkerExited& ended, const EvidenceSources& sources) {
  if (sources.plan.kind != Plan::Kind::kTrain) add_stderr_errors(ended, sources.output, sources.plan);
  ended.error_file = find_error_file(sources.files, sources.output.error_file(ended.rank));
}

agent_event::StandbyGone standby_exit_event(const guardian::Notice& notice, StandbyProcesses::ExitInfo exit_info,
                                            const std::string& program, FileQueue& files) {
  agent_event::StandbyGone gone{.number = notice.worker, .pid = notice.pid, .time_ns = notice.time_ns};
  gone.message = std::move(exit_info.why);
  gone.permanent = exit_info.permanent;
  if (notice.error != 0) {
    gone.message = spawn_failure_reason(notice, program, files);
    return gone;
  }
  const agent_event::WorkerExited ended = worker_exit_event(0, notice);
  gone.status = ended.status;
  if (ended.memory.proof != OomVerdict::Proof::kNone) gone.message = ended.memory.message;
  return gone;
}

std::string spawn_failure_reason(const guardian::Notice& notice, const std::string& program, FileQueue& files) {
  const bool made = notice.kind == guardian::Notice::Kind::kExited;
  const auto stage = made ? static_cast<SpawnError::Stage>(notice.stage) : SpawnError::Stage::kExec;
  std::string reason;
  if (made && stage == SpawnError::Stage::kExec) {
    reason = files.query([error = notice.error, program] { return reason_of_exec_error(error, program); }).value_or("");
  }
  return describe(SpawnError{notice.worker, stage, notice.error}, program) + (reason.empty() ? "" : ": " + reason);
}

}  // namespace ddprun
