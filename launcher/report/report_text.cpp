// Renders a report.json as text for users of `ddprun report FOLDER`. A value that is missing or has an unexpected type is
// skipped, since a different version of ddprun may have written the report.
#include <algorithm>

#include "common/base/check.hpp"
#include "common/base/error.hpp"
#include "common/base/rounding.hpp"
#include "common/system/local_time.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/report/report.hpp"
#include "launcher/report/report_metrics.hpp"

namespace ddprun {
namespace {

using Json = ReportJson;

std::string date_and_time(const Json& nanoseconds) {
  if (!nanoseconds.is_number()) return "?";
  return local_time(nanoseconds.get<std::int64_t>());
}

std::string span_of(const Json& object) {
  if (!report_value(object, "started_ns").is_number() || !report_value(object, "ended_ns").is_number()) return {};
  return format_duration(static_cast<double>(report_integer_at(object, "ended_ns") - report_integer_at(object, "started_ns")) /
                         1e9);
}

std::string status_of(const Json& object) {
  if (report_value(object, "signal").is_number())
    return "signal " + std::to_string(report_integer_at(object, "signal")) + " (" + report_text_at(object, "signal_name") + ")";
  if (report_value(object, "exit_code").is_number())
    return "exit code " + std::to_string(report_integer_at(object, "exit_code"));
  return {};
}

std::string failure_text(const Json& failure, const std::string& indent) {
  std::string line = failed_rank_text(failure);
  if (report_integer_at(failure, "pid") > 0) line += " (pid " + std::to_string(report_integer_at(failure, "pid")) + ")";
  const bool hangs = report_text_at(failure, "cause") == "hang";
  line += ": " + (status_of(failure).empty() || hangs ? report_text_at(failure, "cause") : status_of(failure));
  if (report_value(failure, "step").is_number()) line += " at step " + format_count(report_integer_at(failure, "step"));
  if (!report_text_at(failure, "message").empty()) line += ": " + report_text_at(failure, "message");
  line += "\n";
  // The worker's stderr ends with the same traceback as the call stack, so only one of them is shown.
  const std::string whole_stack = report_text_at(failure, "call_stack");
  std::string_view stack = whole_stack;
  while (!stack.empty()) {
    const std::size_t end = stack.find('\n');
    line += indent + "  | " + std::string(stack.substr(0, end)) + "\n";
    stack.remove_prefix(end == std::string_view::npos ? stack.size() : end + 1);
  }
  if (whole_stack.empty())
    for (const Json& tail : report_value(failure, "stderr_tail")) line += indent + "  | " + report_text(tail) + "\n";
  for (const Json& evidence : report_value(failure, "evidence")) line += indent + "  " + report_text(evidence) + "\n";
  if (!report_text_at(failure, "error_file").empty())
    line += indent + "  error file: " + report_text_at(failure, "error_file") + "\n";
  if (!report_text_at(failure, "log").empty()) {
    const std::int64_t number = report_integer_at(failure, "log_line");
    line += indent + "  log: " + report_text_at(failure, "log") + (number > 0 ? ":" + std::to_string(number) : "") + "\n";
  }
  return line;
}

std::string counted_steps(std::int64_t steps) {
  return format_count(steps) + (steps == 1 ? " step" : " steps");
}

std::string counts_text(const std::vector<std::pair<std::string, std::int64_t>>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) text += (text.empty() ? "" : ", ") + name + " (" + format_count(count) + ")";
  return text;
}

// Draws the rounds on a line of 60 characters: "=" while a round runs, "X" where a round failed, a space between rounds.
std::string time_line(const std::vector<RoundSpan>& rounds) {
  constexpr std::int64_t kWide = 60;
  std::int64_t begin = first_of(rounds, "a timeline has no rounds").begin_ns, end = begin;
  for (const RoundSpan& round : rounds) end = std::max(end, round.end_ns);
  if (end <= begin) return {};
  const auto column = [&](std::int64_t ns) {
    const double share = static_cast<double>(ns - begin) / static_cast<double>(end - begin);
    return static_cast<std::size_t>(std::clamp<std::int64_t>(round_to_nearest(share * kWide), 0, kWide - 1));
  };
  std::string line(kWide, ' ');
  for (const RoundSpan& round : rounds)
    for (std::size_t i = column(round.begin_ns); i <= column(round.end_ns); ++i) line[i] = '=';
  for (const RoundSpan& round : rounds)
    if (round.failed) line[column(round.end_ns)] = 'X';
  return "[" + line + "]";
}

std::string metrics_text(const ReportMetrics& figures) {
  std::string text;
  if (figures.failures > 0) {
    text += "  failures     " + counts_text(figures.causes) + "; first " + counts_text(figures.ranks) + "\n";
  }
  if (figures.steps_lost > 0)
    text += "  steps lost   " + format_count(figures.steps_lost) + ", " + format_duration(figures.lost_s) + " of training\n";
  std::string parts;
  for (const auto& [name, seconds] : figures.time) parts += (parts.empty() ? "" : ", ") + format_duration(seconds) + " " + name;
  if (!parts.empty()) text += "  time         " + parts + "\n";
  if (const std::string share = goodput_of(figures); !share.empty())
    text += "  goodput      " + share + " of " + format_duration(figures.total_s) + "\n";
  if (figures.rounds.size() > 1) {
    if (const std::string line = time_line(figures.rounds); !line.empty()) text += "  time line    " + line + "\n";
  }
  return text;
}

// Returns the ranks in the same form as ranks_text().
std::string ranks_of(const Json& ranks) {
  std::vector<int> numbers;
  for (const Json& rank : ranks) numbers.push_back(static_cast<int>(report_integer(rank, -1)));
  return ranks_text(numbers);
}

// Describes the regroup with which a round started. Returns "" for a round that started without a regroup.
std::string regroup_text(const Json& regroup) {
  const Json &kept = report_value(regroup, "kept"), &replaced = report_value(regroup, "replaced"),
             &standbys = report_value(regroup, "by_standby");
  if (!kept.is_array() || !replaced.is_array()) return {};
  std::string text = !kept.empty() ? ranks_of(kept) + " kept step " : "no rank kept its state: step ";
  text += format_count(report_integer_at(regroup, "step"));
  if (!replaced.empty()) text += ", " + ranks_of(replaced) + " replaced";
  if (standbys.is_array() && !standbys.empty()) {
    text += standbys == replaced ? " by a standby" : ", " + ranks_of(standbys) + " by a standby";
  }
  char time[32];
  std::snprintf(time, sizeof time, " in %.2f s", report_number_at(regroup, "seconds"));
  return "    regrouped    " + text + time + "\n";
}

std::string standbys_text(const Json& ended) {
  if (!ended.is_object()) return {};
  const Json& newest = report_value(ended, "newest");
  std::string text = "  standbys that ended while they waited: " + format_count(report_integer_at(ended, "count"));
  const std::string status = status_of(newest), message = report_text_at(newest, "message");
  if (!status.empty()) text += ", the newest with " + status;
  return text + (message.empty() ? "" : ": " + message) + "\n";
}

// Returns a text such as "40 more: lost_peer, rank 9 10 11 and others".
std::string others_text(const Json& others) {
  const std::int64_t count = report_integer_at(others, "count");
  std::string text = std::to_string(count) + " more: " + report_text_at(others, "cause") + ", rank";
  const Json& ranks = report_value(others, "ranks");
  for (const Json& rank : ranks) text += " " + std::to_string(report_integer(rank, -1));
  return text + (std::ssize(ranks) < count ? " and others" : "");
}

std::string round_text(const Json& round) {
  std::string text = "  round " + std::to_string(report_integer_at(round, "round")) + "  " +
                     date_and_time(report_value(round, "started_ns")) + "  " +
                     std::to_string(report_integer_at(round, "world_size")) + " workers";
  if (!span_of(round).empty()) text += ", " + span_of(round);
  text += "\n" + regroup_text(report_value(round, "regroup"));
  for (const Json& one : report_value(round, "stragglers")) {
    if (const std::string straggler = straggler_text(one); !straggler.empty()) text += "    straggler    " + straggler + "\n";
  }
  if (report_value(round, "first_cause").is_object()) {
    text += "    first cause  " + failure_text(report_value(round, "first_cause"), "    ");
    for (const Json& failure : report_value(round, "consequences")) text += "    then         " + failure_text(failure, "    ");
    for (const Json& others : report_value(round, "other_consequences"))
      text += "    and          " + others_text(others) + "\n";
  }
  if (const Json& left = report_value(round, "left_early"); left.is_array() && !left.empty()) {
    text += "    left early   rank";
    for (const Json& rank : left) text += " " + std::to_string(report_integer(rank, -1));
    text += ": exit code 0 while others continued\n";
  }
  if (report_integer_at(round, "steps_lost") > 0)
    text += "    lost         " + counted_steps(report_integer_at(round, "steps_lost")) + ", repeated\n";
  if (!report_text_at(round, "decision").empty()) {
    const std::string why = report_text_at(round, "why");
    text += "    decision     " +
            (report_text_at(round, "decision") == "give_up" ? "give up" : report_text_at(round, "decision")) +
            (why.empty() ? "" : ": " + why) + "\n";
  }
  return text;
}

}  // namespace

std::string render_report(std::string_view text, const std::string& name, const std::string& step_time,
                          const std::string& memory, const std::string& skipped) {
  const Json report = Json::parse(text, nullptr, false);
  if (!report.is_object() || !report_value(report, "rounds").is_array()) throw UsageError(name + " is not a ddprun report");

  std::string out = report_text_at(report, "title");
  if (!report_text_at(report, "run_dir").empty()) out += "  " + report_text_at(report, "run_dir");
  out += "\n  ended        " + exit_text(report_value(report, "exit")) + "\n";
  if (report_value(report, "last_step").is_number())
    out += "  last step    " + format_count(report_integer_at(report, "last_step")) + "\n";
  if (const Json& figures = report_value(report, "figures"); figures.is_object()) {
    out += "  metrics      " + metrics_text(evaluation_metrics(figures)) + " at step " +
           format_count(report_integer_at(figures, "step")) + "\n";
  }
  if (const Json& evaluation = report_value(report, "evaluation"); evaluation.is_object()) {
    out += "  evaluation   test " + metrics_text(evaluation_metrics(evaluation)) + " at step " +
           format_count(report_integer_at(evaluation, "step")) + "\n";
  }
  if (const Json& latest = report_value(report_value(report, "checkpoints"), "latest"); latest.is_object()) {
    out += "  checkpoints  " + format_count(report_integer(report_value(report_value(report, "checkpoints"), "published"))) +
           " published, newest " + report_text_at(latest, "path") + "\n";
  }
  const Json& restarts = report_value(report, "restarts");
  out += "  restarts     " + std::to_string(report_integer_at(restarts, "used")) + " used, budget " +
         std::to_string(report_integer_at(restarts, "budget")) +
         (report_value(restarts, "refilled_by_progress") == true ? ", refilled by progress" : "") + "\n";
  out += metrics_text(metrics_of(report));
  if (!step_time.empty()) out += "  step time    " + step_time + "\n";
  if (!memory.empty()) out += "  peak memory  " + memory + "\n";
  if (!skipped.empty()) out += "  skipped      " + skipped + "\n";

  int shown = -1;
  for (const Json& round : report_value(report, "rounds")) {
    const int number = static_cast<int>(report_integer_at(round, "invocation"));
    if (number != shown) {
      shown = number;
      const Json& invocations = report_value(report, "invocations");
      out += "\n";
      if (invocations.is_array() && number >= 0 && static_cast<std::size_t>(number) < invocations.size()) {
        const Json& invocation = invocations[static_cast<std::size_t>(number)];
        // When an agent is killed, its guardian writes "exit" only at the top level of the report. That value belongs to the
        // newest invocation.
        const bool newest = static_cast<std::size_t>(number) + 1 == invocations.size();
        const Json& exit = newest && !report_value(invocation, "exit").is_object() ? report_value(report, "exit")
                                                                                   : report_value(invocation, "exit");
        out +=
            "start " + std::to_string(number + 1) + " on " + report_text_at(invocation, "host") + ", " + exit_text(exit) + "\n";
        if (const Json& slurm = report_value(invocation, "slurm"); slurm.is_object()) {
          out += "  Slurm job " + report_text_at(slurm, "job") + ", requeued " +
                 std::to_string(report_integer_at(slurm, "restarts")) + " times before this start\n";
        }
        out += standbys_text(report_value(invocation, "standbys_ended"));
      }
    }
    out += round_text(round);
  }
  return out;
}

}  // namespace ddprun
