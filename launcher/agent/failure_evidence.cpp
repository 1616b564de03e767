// Implementation of failure_evidence.hpp.
#include "launcher/agent/failure_evidence.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "common/system/host_name.hpp"
#include "launcher/guardian/spawn.hpp"
#include "launcher/verdict/oom_verdict.hpp"
#include "launcher/workers/error_file_reader.hpp"
#include "launcher/workers/exec_reason.hpp"

namespace ddprun {

namespace {

// Leaves a failure of another node as it is.
void add_evidence(Failure& failure, const WorkerOutput& output) {
  if (failure.local_rank < 0) return;  // a failure of another node
  failure.host = host_name();
  if (failure.cause == Cause::kSpawn) return;
  failure.stderr_tail = output.stderr_tail(failure.local_rank);
  failure.log_path = output.stderr_log(failure.local_rank).string();
  const auto shown = static_cast<std::int64_t>(failure.stderr_tail.size());
  const std::int64_t lines = shown > 0 && !failure.log_path.empty() ? output.stderr_lines(failure.local_rank) : 0;
  if (lines >= shown && shown > 0) failure.log_line = lines - shown + 1;
}

void hand_on(const Failure& first, FileQueue& files, std::span<const std::string> inherited_environment) {
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
  if (failed.decision == RoundFailed::Decision::kGiveUp) hand_on(failed.first, files, inherited_environment);
}

void add_what_it_told(agent_event::WorkerExited& ended, const WorkerOutput& output, const Plan& plan) {
  const std::vector<std::string> tail = output.stderr_tail(ended.rank);
  const auto memory =
      std::find_if(tail.rbegin(), tail.rend(), [](const std::string& line) { return says_out_of_memory(line); });
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
  return files.ask([file] { return read_error_file(file); }).value_or(std::nullopt);
}

agent_event::WorkerExited how_worker_went(int rank, const guardian::Notice& notice) {
  const ExitStatus status{.code = notice.code, .signal = notice.signal, .core_dumped = notice.core_dumped != 0};
  agent_event::WorkerExited ended{rank, notice.pid, status, notice.time_ns};
  ended.memory = judge_memory(notice.memory, status);
  return ended;
}

void add_what_it_left(agent_event::WorkerExited& ended, const LeftBehind& left) {
  if (left.plan.kind != Plan::Kind::kTrain) add_what_it_told(ended, left.output, left.plan);
  ended.error_file = find_error_file(left.files, left.output.error_file(ended.rank));
}

agent_event::StandbyGone how_standby_went(const guardian::Notice& notice, StandbyProcesses::Went went,
                                          const std::string& program, FileQueue& files) {
  agent_event::StandbyGone gone{.number = notice.worker, .pid = notice.pid, .time_ns = notice.time_ns};
  gone.message = std::move(went.why);
  gone.for_good = went.for_good;
  if (notice.error != 0) {
    gone.message = why_not_started(notice, program, files);
    return gone;
  }
  const agent_event::WorkerExited ended = how_worker_went(0, notice);
  gone.status = ended.status;
  if (ended.memory.proof != OomVerdict::Proof::kNone) gone.message = ended.memory.message;
  return gone;
}

std::string why_not_started(const guardian::Notice& notice, const std::string& program, FileQueue& files) {
  const bool made = notice.kind == guardian::Notice::Kind::kExited;
  const auto stage = made ? static_cast<SpawnError::Stage>(notice.stage) : SpawnError::Stage::kExec;
  std::string reason;
  if (made && stage == SpawnError::Stage::kExec) {
    reason = files.ask([error = notice.error, program] { return reason_of_exec_error(error, program); }).value_or("");
  }
  return describe(SpawnError{notice.worker, stage, notice.error}, program) + (reason.empty() ? "" : ": " + reason);
}

}  // namespace ddprun
