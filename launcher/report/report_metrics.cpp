#include "launcher/report/report_metrics.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <limits>
#include <map>

#include "launcher/events/progress.hpp"

namespace ddprun {
namespace {

struct TimePart {
  const char* key;
  const char* name;
};
// If no step was reported, start and training are shown as one part, "running". It is then unknown when training started,
// because a script first imports its libraries.
constexpr const char* kTrainingKey = "training_s";
constexpr const char* kStartKey = "start_s";
constexpr std::array kTimeParts{TimePart{kTrainingKey, "training"},        TimePart{"evaluation_s", "evaluating"},
                                TimePart{"checkpoint_s", "checkpoints"},   TimePart{kStartKey, "starting"},
                                TimePart{"restart_s", "lost to restarts"}, TimePart{"waiting_s", "waiting for nodes"}};

using Counts = std::map<std::string, std::int64_t>;

std::vector<std::pair<std::string, std::int64_t>> most_frequent_first(const Counts& counts) {
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

std::string rank_and_host(const ReportJson& failure) {
  const std::string host = report_text_at(failure, "host");
  return failed_rank_text(failure) + (host.empty() ? "" : " on " + host);
}

}  // namespace

std::string failed_rank_text(const ReportJson& failure) {
  if (!report_value(failure, "rank").is_number()) return "the node";
  return "rank " + std::to_string(report_integer_at(failure, "rank", -1));
}

const ReportJson& report_value(const ReportJson& object, const char* key) {
  static const ReportJson nothing;
  return object.is_object() && object.contains(key) ? object[key] : nothing;
}

std::string report_text(const ReportJson& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::int64_t report_integer(const ReportJson& value, std::int64_t otherwise) {
  return value.is_number_integer() ? value.get<std::int64_t>() : otherwise;
}

double report_number(const ReportJson& value) {
  return value.is_number() ? value.get<double>() : 0;
}

MetricList evaluation_metrics(const ReportJson& evaluation) {
  MetricList figures;
  if (!evaluation.is_object()) return figures;
  for (const auto& [name, value] : evaluation.items()) {
    if (std::ranges::find(kReservedMetricNames, name) != std::end(kReservedMetricNames)) continue;
    if (value.is_number()) figures.push_back({name, value.get<double>()});
    if (value.is_null()) figures.push_back({name, std::numeric_limits<double>::quiet_NaN()});
  }
  return figures;
}

std::string straggler_text(const ReportJson& straggler) {
  if (report_value(straggler, "ended") == true) return {};
  const std::string kind = report_text_at(straggler, "kind");
  char times[96];
  std::snprintf(times, sizeof times, ": %.1f ms per step, %s %.1f ms, at step ", report_number_at(straggler, "own_s") * 1000,
                kind == "network" ? "before" : "the others", report_number_at(straggler, "others_s") * 1000);
  const bool has_rank = report_value(straggler, "rank").is_number();
  return (has_rank ? "rank " + std::to_string(report_integer_at(straggler, "rank")) + ", " : "") + kind + times +
         format_count(report_integer_at(straggler, "step"));
}

ReportMetrics metrics_of(const ReportJson& report, std::optional<std::int64_t> now_ns) {
  ReportMetrics figures;
  const ReportJson& time = report_value(report, "time");
  figures.has_steps = report_value(report, "last_step").is_number();
  for (const TimePart& part : kTimeParts) {
    double seconds = report_number_at(time, part.key);
    figures.total_s += seconds;
    const char* name = part.name;
    if (!figures.has_steps && part.key == kTrainingKey) {
      name = "running";
      seconds += report_number_at(time, kStartKey);
    }
    if (!figures.has_steps && part.key == kStartKey) continue;
    if (seconds > 0) figures.time.emplace_back(name, seconds);
  }
  figures.lost_s = report_number_at(time, "lost_s");
  figures.useful_s =
      std::max(0.0, report_number_at(time, "training_s") + report_number_at(time, "evaluation_s") - figures.lost_s);
  figures.steps_lost = report_integer_at(report, "steps_lost");

  Counts causes, ranks;
  for (const ReportJson& round : report_value(report, "rounds")) {
    if (!report_value(round, "started_ns").is_number()) continue;
    const ReportJson& first = report_value(round, "first_cause");
    RoundSpan span{.round = &round, .begin_ns = report_integer_at(round, "started_ns")};
    span.end_ns = std::max(span.begin_ns, report_integer_at(round, "ended_ns", span.begin_ns));
    span.failed = first.is_object();
    figures.rounds.push_back(span);
    if (!span.failed) continue;
    ++figures.failures;
    ++causes[report_text_at(first, "cause")];
    ++ranks[rank_and_host(first)];
  }
  if (now_ns && !figures.rounds.empty()) {
    RoundSpan& newest = figures.rounds.back();
    // If the agent of an earlier invocation was killed, its last round has no end time.
    const bool of_this_start =
        report_integer_at(*newest.round, "invocation") + 1 == std::ssize(report_value(report, "invocations"));
    newest.runs = of_this_start && !report_value(*newest.round, "ended_ns").is_number();
    if (newest.runs) newest.end_ns = std::max(newest.begin_ns, *now_ns);
  }
  // The report of a long run lacks the rounds in the middle. Its member "failures" counts the failures of all rounds, so these
  // counts replace the counts that were computed from the rounds.
  if (const ReportJson& counted = report_value(report, "failures"); counted.is_object()) {
    causes.clear();
    figures.failures = 0;
    for (const auto& [cause, count] : counted.items()) {
      if (!count.is_number_integer()) continue;
      causes[cause] = count.get<std::int64_t>();
      figures.failures += causes[cause];
    }
  }
  figures.causes = most_frequent_first(causes);
  figures.ranks = most_frequent_first(ranks);
  return figures;
}

std::string exit_text(const ReportJson& exit) {
  if (!exit.is_object()) return "still running, or killed before it could record its end";
  const ReportJson& code = report_value(exit, "code");
  const std::string why = report_text_at(exit, "why");
  return (code.is_number() ? "exit code " + std::to_string(code.get<std::int64_t>()) : "no exit code") +
         (why.empty() ? "" : ": " + why);
}

std::string goodput_of(const ReportMetrics& figures) {
  if (!(figures.total_s > 0) || !figures.has_steps) return {};
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * figures.useful_s / figures.total_s);
  return text;
}

}  // namespace ddprun
