// Implementation of job_judge.hpp. The policy looks at the last rounds only; they are kept in Budget::memory as JSON.
#include "launcher/job_judge.hpp"

#include <nlohmann/json.hpp>
#include <span>

#include "common/exit_code.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;
using rendezvous::FailureCause;

constexpr std::size_t kRemembered = 12;  // the longest pause is reached before; each takes at most 80 of the 1024 bytes

static_assert(static_cast<int>(FailureCause::kHang) == static_cast<int>(kLastCause) &&
              static_cast<int>(FailureCause::kSpawn) == static_cast<int>(Cause::kSpawn));

FailedRound record_of(const rendezvous::FailureReport& report) {
  FailedRound round;
  round.cause = static_cast<Cause>(report.cause);
  round.rank = report.rank;
  round.status = {.code = report.exit_code, .signal = report.signal};
  round.step = report.step;
  round.resumed_from = report.resumed_from;
  round.newest_checkpoint = report.newest_checkpoint;
  round.lasted = std::chrono::nanoseconds(report.lasted_ns);
  return round;
}

std::vector<FailedRound> recall(const std::string& memory) {
  std::vector<FailedRound> history;
  const Json json = Json::parse(memory, nullptr, false);
  if (!json.is_array()) return history;
  for (const Json& one : json) {
    if (!one.is_array() || one.size() != 7) continue;
    std::array<std::int64_t, 7> values{};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = one[i].is_number_integer() ? one[i].get<std::int64_t>() : 0;
    if (values[0] < 0 || values[0] > static_cast<int>(kLastCause)) continue;
    FailedRound round;
    round.cause = static_cast<Cause>(values[0]);
    round.rank = static_cast<int>(values[1]);
    round.status = {.code = static_cast<int>(values[2]), .signal = static_cast<int>(values[3])};
    round.step = values[4];
    round.newest_checkpoint = values[5];
    round.lasted = std::chrono::milliseconds(values[6]);
    history.push_back(round);
  }
  return history;
}

std::string remember(std::span<const FailedRound> history) {
  Json json = Json::array();
  for (const FailedRound& round : history.last(std::min(history.size(), kRemembered))) {
    const auto lasted = std::chrono::duration_cast<std::chrono::milliseconds>(round.lasted);
    json.push_back({static_cast<int>(round.cause), round.rank, round.status.code, round.status.signal, round.step,
                    round.newest_checkpoint, std::min<std::int64_t>(lasted.count(), 100'000)});
  }
  return json.dump();
}

}  // namespace

rendezvous::FailureReport report_of(const Failure& failure, const FailedRound& record) {
  rendezvous::FailureReport report;
  report.rank = failure.rank;
  report.cause = static_cast<FailureCause>(failure.cause);
  report.exit_code = record.status.code;
  report.signal = record.status.signal;
  report.step = record.step;
  report.resumed_from = record.resumed_from;
  report.newest_checkpoint = record.newest_checkpoint;
  report.lasted_ns = record.lasted.count();
  report.time_ns = failure.time_ns;
  report.message = failure.message;
  return report;
}

Failure failure_of(const rendezvous::FailureReport& report) {
  Failure failure;
  failure.cause = static_cast<Cause>(report.cause);
  failure.rank = report.rank;
  if (failure.cause != Cause::kSpawn) failure.status = ExitStatus{.code = report.exit_code, .signal = report.signal};
  failure.host = report.hostname;
  failure.message = report.message;
  failure.step = report.step;
  failure.time_ns = report.time_ns;
  return failure;
}

rendezvous::Verdict judge(const rendezvous::FailureReport& first, const rendezvous::Budget& before,
                          const RestartLimits& limits) {
  const FailedRound last = record_of(first);
  std::vector<FailedRound> history = recall(before.memory);
  history.push_back(last);
  const int used = limits.refill_by_progress && made_progress(last) ? 0 : before.used;
  const std::string who = "worker " + std::to_string(first.rank) + (first.hostname.empty() ? "" : " on " + first.hostname);
  const bool has_status = last.cause != Cause::kSpawn && last.cause != Cause::kStuck;
  const std::string what = who + ": " + (has_status ? describe(last.status) : first.message);

  rendezvous::Verdict verdict;
  // It was preempted by itself, and has saved: not a failure, and a restart would be stopped again.
  const bool preempted = last.status.signal == 0 && last.status.code == static_cast<int>(ExitCode::kPreempted);
  const RestartDecision decision = preempted
                                       ? RestartDecision(GiveUp{static_cast<int>(ExitCode::kPreempted),
                                                                "stopped by its workers after saving: run it again to go on"})
                                       : decide_restart(history, limits, used);
  if (const auto* give_up = std::get_if<GiveUp>(&decision)) {
    verdict.exit_code = give_up->exit_code;
    verdict.why = what + "; " + give_up->why;
    return verdict;
  }
  const Restart& restart = std::get<Restart>(decision);
  verdict.restart = true;
  verdict.why = restart.why;
  verdict.delay = restart.delay;
  verdict.after = before;
  verdict.after.used = used + 1;
  verdict.after.memory = remember(history);
  return verdict;
}

}  // namespace ddprun
