// Implementation of job_judge.hpp. The policy looks at the last rounds only; they are kept in Budget::memory as JSON.
#include "launcher/verdict/job_judge.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "common/base/exit_code.hpp"
#include "launcher/verdict/oom_verdict.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;
using rendezvous::FailureCause;

// The longest pause is reached before; each takes at most 86 of the 1024 bytes, the counts by cause at most 240.
constexpr std::size_t kRemembered = kMostSameFailures;
constexpr std::size_t kFiguresOfARound = 9;

static_assert(static_cast<int>(FailureCause::kLateUsage) == static_cast<int>(kLastCause) &&
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
  round.shrink = report.shrink;
  if (is_out_of_memory(round.cause)) round.memory_asked = memory_asked_in(report.message);
  return round;
}

struct JudgeMemory {
  std::vector<FailedRound> rounds;      // the last ones
  std::array<int, kCauses> restarts{};  // by cause, since the budget was last full
};

FailedRound recalled_round(const Json& one) {
  std::array<std::int64_t, kFiguresOfARound> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = one[i].is_number_integer() ? one[i].get<std::int64_t>() : 0;
  FailedRound round;
  round.cause = static_cast<Cause>(std::clamp<std::int64_t>(values[0], 0, static_cast<int>(kLastCause)));
  round.rank = static_cast<int>(values[1]);
  round.status = {.code = static_cast<int>(values[2]), .signal = static_cast<int>(values[3])};
  round.step = values[4];
  round.newest_checkpoint = values[5];
  round.lasted = std::chrono::milliseconds(values[6]);
  round.memory_asked = static_cast<std::uint16_t>(values[8]);
  round.resumed_from = values[7] != 0 ? round.newest_checkpoint - 1 : round.newest_checkpoint;
  return round;
}

JudgeMemory recall(const std::string& text) {
  JudgeMemory memory;
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("rounds") || !json.contains("restarts")) return memory;
  for (const Json& one : json["rounds"])
    if (one.is_array() && one.size() == kFiguresOfARound) memory.rounds.push_back(recalled_round(one));
  for (std::size_t i = 0; i < std::min(json["restarts"].size(), kCauses); ++i)
    if (json["restarts"].is_array() && json["restarts"][i].is_number_integer()) memory.restarts[i] = json["restarts"][i];
  return memory;
}

std::string remember(const JudgeMemory& memory) {
  Json rounds = Json::array();
  const std::span<const FailedRound> history(memory.rounds);
  for (const FailedRound& round : history.last(std::min(history.size(), kRemembered))) {
    const auto lasted = std::chrono::duration_cast<std::chrono::milliseconds>(round.lasted);
    rounds.push_back({static_cast<int>(round.cause), round.rank, round.status.code, round.status.signal, round.step,
                      round.newest_checkpoint, std::min<std::int64_t>(lasted.count(), 100'000), made_progress(round) ? 1 : 0,
                      round.memory_asked});
  }
  return Json{{"restarts", memory.restarts}, {"rounds", rounds}}.dump();
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
  report.shrink = record.shrink;
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

RestartFacts facts_of(const rendezvous::Budget& budget) {
  const JudgeMemory memory = recall(budget.memory);
  RestartFacts facts = facts_of(memory.rounds);
  facts.out_of_memory = memory.restarts[static_cast<std::size_t>(Cause::kOutOfMemory)] +
                        memory.restarts[static_cast<std::size_t>(Cause::kHostOutOfMemory)];
  return facts;
}

rendezvous::Verdict judge(const rendezvous::FailureReport& first, const rendezvous::Budget& before,
                          const RestartLimits& limits) {
  const FailedRound last = record_of(first);
  JudgeMemory memory = recall(before.memory);
  memory.rounds.push_back(last);
  const bool refilled = limits.refill_by_progress && made_progress(last);
  if (refilled) memory.restarts = {};
  const int used = refilled ? 0 : before.used;
  int& used_for_cause = memory.restarts[static_cast<std::size_t>(last.cause)];
  const std::string who = "worker " + std::to_string(first.rank) + (first.hostname.empty() ? "" : " on " + first.hostname);
  const bool has_status = last.cause != Cause::kSpawn && last.cause != Cause::kStuck && last.cause != Cause::kHang;
  const std::string what = who + ": " + (has_status ? describe(last.status) : first.message);

  rendezvous::Verdict verdict;
  // It was preempted by itself, and has saved: not a failure, and a restart would be stopped again.
  const bool preempted = last.status.signal == 0 && last.status.code == static_cast<int>(ExitCode::kPreempted);
  const RestartDecision decision = preempted
                                       ? RestartDecision(GiveUp{static_cast<int>(ExitCode::kPreempted),
                                                                "stopped by its workers after saving: run it again to go on"})
                                       : decide_restart(memory.rounds, limits, {used, used_for_cause});
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
  verdict.after.used = used + (is_free(last) ? 0 : 1);
  ++used_for_cause;
  verdict.after.memory = remember(memory);
  return verdict;
}

}  // namespace ddprun
