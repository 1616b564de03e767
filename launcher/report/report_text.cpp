// A report.json as text for people: `ddprun report FOLDER`. A value that is missing or has another type is left out and is no
// error, since another version may have written the report.
#include <algorithm>
#include <cmath>

#include "common/base/check.hpp"
#include "common/base/error.hpp"
#include "common/system/local_time.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/report/report.hpp"
#include "launcher/report/report_figures.hpp"

namespace ddprun {
namespace {

using Json = ReportJson;

const Json& at(const Json& object, const char* key) {
  return report_value(object, key);
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}
std::int64_t integer_of(const Json& value, std::int64_t otherwise = 0) {
  return value.is_number() ? value.get<std::int64_t>() : otherwise;
}
double number_of(const Json& value) {
  return value.is_number() ? value.get<double>() : 0;
}

std::string date_and_time(const Json& nanoseconds) {
  if (!nanoseconds.is_number()) return "?";
  return local_time(nanoseconds.get<std::int64_t>());
}

std::string span_of(const Json& object) {
  if (!at(object, "started_ns").is_number() || !at(object, "ended_ns").is_number()) return {};
  return format_duration(static_cast<double>(integer_of(at(object, "ended_ns")) - integer_of(at(object, "started_ns"))) / 1e9);
}

std::string status_of(const Json& object) {
  if (at(object, "signal").is_number())
    return "signal " + std::to_string(integer_of(at(object, "signal"))) + " (" + text_of(at(object, "signal_name")) + ")";
  if (at(object, "exit_code").is_number()) return "exit code " + std::to_string(integer_of(at(object, "exit_code")));
  return {};
}

std::string failure_text(const Json& failure, const std::string& indent) {
  std::string line = whose_failure(failure);
  if (integer_of(at(failure, "pid")) > 0) line += " (pid " + std::to_string(integer_of(at(failure, "pid"))) + ")";
  const bool hangs = text_of(at(failure, "cause")) == "hang";
  line += ": " + (status_of(failure).empty() || hangs ? text_of(at(failure, "cause")) : status_of(failure));
  if (at(failure, "step").is_number()) line += " at step " + format_count(integer_of(at(failure, "step")));
  if (!text_of(at(failure, "message")).empty()) line += ": " + text_of(at(failure, "message"));
  line += "\n";
  // The worker's stderr ends with the Python traceback, so one of the two is enough.
  const std::string whole_stack = text_of(at(failure, "call_stack"));
  std::string_view stack = whole_stack;
  while (!stack.empty()) {
    const std::size_t end = stack.find('\n');
    line += indent + "  | " + std::string(stack.substr(0, end)) + "\n";
    stack.remove_prefix(end == std::string_view::npos ? stack.size() : end + 1);
  }
  if (whole_stack.empty())
    for (const Json& tail : at(failure, "stderr_tail")) line += indent + "  | " + text_of(tail) + "\n";
  for (const Json& evidence : at(failure, "evidence")) line += indent + "  " + text_of(evidence) + "\n";
  if (!text_of(at(failure, "error_file")).empty())
    line += indent + "  error file: " + text_of(at(failure, "error_file")) + "\n";
  if (!text_of(at(failure, "log")).empty()) {
    const std::int64_t number = integer_of(at(failure, "log_line"));
    line += indent + "  log: " + text_of(at(failure, "log")) + (number > 0 ? ":" + std::to_string(number) : "") + "\n";
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

// Rounds on a line of 60 characters: "=" while one runs, "X" where one failed.
std::string time_line(const std::vector<RoundSpan>& rounds) {
  constexpr std::int64_t kWide = 60;
  std::int64_t begin = first_of(rounds, "a time line has no round").begin_ns, end = begin;
  for (const RoundSpan& round : rounds) end = std::max(end, round.end_ns);
  if (end <= begin) return {};
  const auto column = [&](std::int64_t ns) {
    const double share = static_cast<double>(ns - begin) / static_cast<double>(end - begin);
    return static_cast<std::size_t>(std::clamp<std::int64_t>(std::llround(share * kWide), 0, kWide - 1));
  };
  std::string line(kWide, ' ');
  for (const RoundSpan& round : rounds)
    for (std::size_t i = column(round.begin_ns); i <= column(round.end_ns); ++i) line[i] = '=';
  for (const RoundSpan& round : rounds)
    if (round.failed) line[column(round.end_ns)] = 'X';
  return "[" + line + "]";
}

std::string figures_text(const ReportFigures& figures) {
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

// "rank 1", "ranks 0 2"
std::string ranks_named(const Json& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (const Json& rank : ranks) text += " " + std::to_string(integer_of(rank, -1));
  return text;
}

// How a round that began with a regroup formed; empty for any other round.
std::string regroup_text(const Json& regroup) {
  const Json &kept = at(regroup, "kept"), &replaced = at(regroup, "replaced"), &standbys = at(regroup, "by_standby");
  if (!kept.is_array() || !replaced.is_array()) return {};
  std::string text = !kept.empty() ? ranks_named(kept) + " kept step " : "nobody held the state: step ";
  text += format_count(integer_of(at(regroup, "step")));
  if (!replaced.empty()) text += ", " + ranks_named(replaced) + " replaced";
  if (standbys.is_array() && !standbys.empty()) {
    text += standbys == replaced ? " by a standby" : ", " + ranks_named(standbys) + " by a standby";
  }
  char time[32];
  std::snprintf(time, sizeof time, " in %.2f s", number_of(at(regroup, "seconds")));
  return "    regrouped    " + text + time + "\n";
}

std::string standbys_text(const Json& ended) {
  if (!ended.is_object()) return {};
  const Json& newest = at(ended, "newest");
  std::string text = "  standbys that ended while they waited: " + format_count(integer_of(at(ended, "count")));
  const std::string status = status_of(newest), message = text_of(at(newest, "message"));
  if (!status.empty()) text += ", the newest with " + status;
  return text + (message.empty() ? "" : ": " + message) + "\n";
}

// "40 more: lost_peer, ranks 9 10 11 and others"
std::string others_text(const Json& others) {
  const std::int64_t count = integer_of(at(others, "count"));
  std::string text = std::to_string(count) + " more: " + text_of(at(others, "cause")) + ", rank";
  const Json& ranks = at(others, "ranks");
  for (const Json& rank : ranks) text += " " + std::to_string(integer_of(rank, -1));
  return text + (std::ssize(ranks) < count ? " and others" : "");
}

std::string round_text(const Json& round) {
  std::string text = "  round " + std::to_string(integer_of(at(round, "round"))) + "  " +
                     date_and_time(at(round, "started_ns")) + "  " + std::to_string(integer_of(at(round, "world_size"))) +
                     " workers";
  if (!span_of(round).empty()) text += ", " + span_of(round);
  text += "\n" + regroup_text(at(round, "regroup"));
  if (at(round, "first_cause").is_object()) {
    text += "    first cause  " + failure_text(at(round, "first_cause"), "    ");
    for (const Json& failure : at(round, "consequences")) text += "    then         " + failure_text(failure, "    ");
    for (const Json& others : at(round, "other_consequences")) text += "    and          " + others_text(others) + "\n";
  }
  if (const Json& left = at(round, "left_early"); left.is_array() && !left.empty()) {
    text += "    left early   rank";
    for (const Json& rank : left) text += " " + std::to_string(integer_of(rank, -1));
    text += ": exit code 0 while others went on\n";
  }
  if (integer_of(at(round, "steps_lost")) > 0)
    text += "    lost         " + counted_steps(integer_of(at(round, "steps_lost"))) + ", done again\n";
  if (!text_of(at(round, "decision")).empty()) {
    const std::string why = text_of(at(round, "why"));
    text += "    decision     " + (text_of(at(round, "decision")) == "give_up" ? "give up" : text_of(at(round, "decision"))) +
            (why.empty() ? "" : ": " + why) + "\n";
  }
  return text;
}

}  // namespace

std::string render_report(std::string_view text, const std::string& name) {
  const Json report = Json::parse(text, nullptr, false);
  if (!report.is_object() || !at(report, "rounds").is_array()) throw UsageError(name + " is not a report of ddprun");

  std::string out = text_of(at(report, "title"));
  if (!text_of(at(report, "run_dir")).empty()) out += "  " + text_of(at(report, "run_dir"));
  out += "\n  ended        " + how_it_ended(at(report, "exit")) + "\n";
  if (at(report, "last_step").is_number()) out += "  last step    " + format_count(integer_of(at(report, "last_step"))) + "\n";
  if (const Json& evaluation = at(report, "evaluation"); evaluation.is_object()) {
    out += "  evaluation   test " + figures_text(evaluation_figures(evaluation)) + " at step " +
           format_count(integer_of(at(evaluation, "step"))) + "\n";
  }
  if (const Json& latest = at(at(report, "checkpoints"), "latest"); latest.is_object()) {
    out += "  checkpoints  " + format_count(integer_of(at(at(report, "checkpoints"), "published"))) + " published, newest " +
           text_of(at(latest, "path")) + "\n";
  }
  const Json& restarts = at(report, "restarts");
  out += "  restarts     " + std::to_string(integer_of(at(restarts, "used"))) + " used, budget " +
         std::to_string(integer_of(at(restarts, "budget"))) +
         (at(restarts, "refilled_by_progress") == true ? ", refilled by progress" : "") + "\n";
  out += figures_text(figures_of(report));

  int shown = -1;
  for (const Json& round : at(report, "rounds")) {
    const int number = static_cast<int>(integer_of(at(round, "invocation")));
    if (number != shown) {
      shown = number;
      const Json& invocations = at(report, "invocations");
      out += "\n";
      if (invocations.is_array() && number >= 0 && static_cast<std::size_t>(number) < invocations.size()) {
        const Json& invocation = invocations[static_cast<std::size_t>(number)];
        // The guardian of a killed agent can change only the report's own "exit".
        const bool newest = static_cast<std::size_t>(number) + 1 == invocations.size();
        const Json& exit = newest && !at(invocation, "exit").is_object() ? at(report, "exit") : at(invocation, "exit");
        out +=
            "start " + std::to_string(number + 1) + " on " + text_of(at(invocation, "host")) + ", " + how_it_ended(exit) + "\n";
        out += standbys_text(at(invocation, "standbys_ended"));
      }
    }
    out += round_text(round);
  }
  return out;
}

}  // namespace ddprun
