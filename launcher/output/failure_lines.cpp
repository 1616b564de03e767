// Implementation of failure_lines.hpp. The summary of a failed script has torchrun's format, since some tools parse it.
#include "launcher/output/failure_lines.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/base/signal_name.hpp"
#include "common/system/local_time.hpp"
#include "launcher/events/event_json.hpp"
#include "launcher/events/printf_text.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/output/line_splitter.hpp"
#include "launcher/output/worker_output_route.hpp"
#include "launcher/plan/plan_input.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kEvidenceLines = 8;
constexpr std::size_t kMaxBarWidth = 60;
constexpr std::size_t kNamedRanks = 8;

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

// Returns each distinct line once, with the number of its occurrences, in the order of first occurrence. Empty lines are not
// merged.
std::vector<std::pair<std::string, int>> with_counts(const std::vector<std::string>& lines) {
  std::vector<std::pair<std::string, int>> counted;
  for (const std::string& line : lines) {
    const auto same = std::find_if(counted.begin(), counted.end(), [&](const auto& one) { return one.first == line; });
    if (same == counted.end() || line.empty()) {
      counted.emplace_back(line, 1);
    } else {
      ++same->second;
    }
  }
  return counted;
}

// Returns the job's name as torchrun prints it: the script as the user typed it, the module, or the program's path.
std::string name_of_job(const Plan& plan) {
  const auto& command = plan.command;
  if (plan.kind == Plan::Kind::kProgram) return command.empty() ? plan.title : command.front();
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (!command[i].starts_with("-")) return command[i];
  }
  return plan.title;
}

// Returns the text that follows "traceback : " in the summary. All lines except the first are indented.
std::string traceback(const Failure& failure) {
  std::string text = failure.call_stack.empty() ? failure.message : failure.call_stack;
  while (text.ends_with('\n')) text.pop_back();
  if (!text.empty() && !failure.error_file.empty()) {
    std::string indented;
    for (const char c : text) indented += c == '\n' ? std::string("\n  ") : std::string(1, c);
    return indented;
  }
  if (failure.status && failure.status->signal != 0) {
    return "Signal " + std::to_string(failure.status->signal) + " (" + signal_name(failure.status->signal) +
           ") received by PID " + std::to_string(failure.pid);
  }
  return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
}

std::string described(const Failure& failure, std::size_t index) {
  const int code = !failure.status ? 0 : failure.status->signal != 0 ? -failure.status->signal : failure.status->code;
  // Since version 2.12, torchrun prints the name of the signal.
  const std::string signal = code < 0 ? " (" + signal_name(failure.status->signal) + ")" : "";
  const std::string local_rank = std::to_string(failure.local_rank >= 0 ? failure.local_rank : failure.rank);
  return "[" + std::to_string(index) + "]:\n" +                                                                     //
         "  time      : " + local_time(failure.time_ns, '_') + "\n" +                                               //
         "  host      : " + failure.host + "\n" +                                                                   //
         "  rank      : " + std::to_string(failure.rank) + " (local_rank: " + local_rank + ")\n" +                  //
         "  exitcode  : " + std::to_string(code) + " (pid: " + std::to_string(failure.pid) + ")" + signal + "\n" +  //
         "  error_file: " + (failure.error_file.empty() ? "<N/A>" : failure.error_file) + "\n" +                    //
         "  traceback : " + traceback(failure) + "\n";
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  for_each_line(text, [&](std::string_view line) { longest = std::max(longest, line.size()); });
  return longest;
}

// Returns a line that lists the ranks which exited with code 0 before the failure, or no line if there are none. `left` has the
// time of exit of each rank that exited with code 0.
std::vector<std::string> early_exits(const std::map<int, std::int64_t>& left, std::int64_t failed_ns) {
  std::string ranks;
  std::size_t count = 0;
  std::int64_t earliest = failed_ns;
  for (const auto& [rank, time_ns] : left) {
    if (time_ns >= failed_ns) continue;
    if (++count <= kNamedRanks) ranks += (count > 1 ? ", " : "") + std::to_string(rank);
    earliest = std::min(earliest, time_ns);
  }
  if (count == 0) return {};
  if (count > kNamedRanks) ranks += " and " + std::to_string(count - kNamedRanks) + " more";
  return {(count == 1 ? "rank " + ranks + " had" : "ranks " + ranks + " had") + " ended before that with exit code 0, " +
          (count == 1 ? "" : "the first of them ") + format_duration(static_cast<double>(failed_ns - earliest) / 1e9) +
          " earlier"};
}

// Returns true if a Python script failed because it tried to read from standard input, which had already ended.
bool failed_at_input_end(const Failure& failure) {
  const auto reports_eof = [](const std::string& text) {
    return text.find("EOFError") != std::string::npos || text.find("bdb.BdbQuit") != std::string::npos;
  };
  return reports_eof(failure.message) || std::ranges::any_of(failure.stderr_tail, reports_eof);
}

// Returns torchrun's summary of a failure, without a final newline. Entry [0] is the root cause. With -v the summary also lists
// ranks that only exited because ddprun stopped them.
std::string failure_summary(const Plan& plan, const RoundFailed& event) {
  const std::string title = name_of_job(plan) + " FAILED";
  const std::string root = described(event.first, 0);
  std::string others;
  std::size_t index = 0;
  for (const Failure& failure : event.consequences) {
    if (failure.cause != Cause::kStopped || plan.verbosity >= 1) others += described(failure, ++index);
  }
  if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";
  const std::size_t width = std::min(kMaxBarWidth, std::max({title.size(), longest_line(root), longest_line(others)}));
  const std::string border(width, '='), line = std::string(width, '-') + "\n";
  return border + "\n" + title + "\n" + line + "Failures:\n" + others + line + "Root Cause (first observed failure):\n" + root +
         border;
}

}  // namespace

void FailureLines::begin_round(const RoundStarted& event) {
  print_killed();
  exited_.clear();
  started_ = Clock::now();
  workers_here_ = event.workers_here > 0 ? event.workers_here : event.world_size;
}

void FailureLines::all_started() {
  if (failed_) print(0, printed("restarted %.2f s after the failure", seconds_since(*failed_)));
  failed_.reset();
}

void FailureLines::worker_ended(const WorkerEnded& event) {
  if (event.stop_requested && event.status.signal == SIGKILL) killed_.push_back(event.rank);
  if (event.status.ok() && !event.stop_requested) exited_[event.rank] = event.time_ns;
}

void FailureLines::print_early_exits(std::int64_t before_ns) {
  for (const std::string& line : early_exits(exited_, before_ns)) warn(line);
}

// Lists the workers that did not stop and were killed. The console calls this when all workers of a round have ended. The user
// must know about SIGKILL, since it may have interrupted file writes.
void FailureLines::print_killed() {
  if (killed_.empty()) return;
  std::sort(killed_.begin(), killed_.end());
  print(0, ranks_text(killed_) + " did not stop in time and " + (killed_.size() == 1 ? "was" : "were") + " killed (SIGKILL)");
  killed_.clear();
}

bool FailureLines::shows_stderr_of(int local_rank) const {
  return route_of(plan_.output, kept_files(plan_), local_rank, Stream::kStderr).shown != OutputRoute::Shown::kNo;
}

bool FailureLines::shows_all_stderr() const {
  for (int local_rank = 0; local_rank < workers_here_; ++local_rank) {
    if (!shows_stderr_of(local_rank)) return false;
  }
  return true;
}

void FailureLines::print_failure(const Failure& failure) {
  std::string head = failure.rank >= 0 ? "rank " + std::to_string(failure.rank) : "the job";
  if (failure.pid > 0) head += " (pid " + std::to_string(failure.pid) + ")";
  if (failure.cause == Cause::kHang) {
    head += " " + failure.message;
  } else {
    head += " failed: ";
    if (failure.status) head += describe(*failure.status);
    if (failure.step >= 0) head += " at step " + format_count(failure.step);
    if (!failure.message.empty()) head += (failure.status ? ": " : "") + failure.message;
  }
  warn_in_red(head);
  for (const auto& [line, times] : with_counts(failure.stderr_tail)) {
    const bool already_shown = !failure.message.empty() && line.find(failure.message) != std::string::npos;
    const std::string count_text = times > 1 ? "    (" + std::to_string(times) + " times)" : "";
    if (already_shown) continue;
    std::string shown = "    | ";
    shown.append(line).append(count_text);
    writer_.line(Stream::kStderr, shown);
  }
  const std::size_t shown = plan_.verbosity > 0 ? failure.evidence.size() : std::min(failure.evidence.size(), kEvidenceLines);
  for (std::size_t i = 0; i < shown; ++i) writer_.line(Stream::kStderr, "    " + failure.evidence[i]);
  if (const std::size_t left = failure.evidence.size() - shown; left > 0) {
    writer_.line(Stream::kStderr, "    ... " + counted(static_cast<std::int64_t>(left), "line") + " more in the report");
  }
  if (!failure.log_path.empty()) warn("its log is " + failure.log_path);
}

// Prints the failure of a script. Worker output that the console has already shown is not printed again. If no better reason is
// known, the last line of stderr is the reason.
void FailureLines::print_script_failure(const RoundFailed& event) {
  Failure first = event.first;
  const bool has_reason = !first.message.empty();
  if (!has_reason && !first.stderr_tail.empty() && first.cause == Cause::kExitCode) first.message = first.stderr_tail.back();
  first.message = first.message.substr(0, first.message.find('\n'));
  const bool summary = event.decision == RoundFailed::Decision::kGiveUp && plan_.verbosity >= 0 && first.cause != Cause::kSpawn;
  if (shows_stderr_of(first.local_rank) || (summary && !first.call_stack.empty())) first.stderr_tail.clear();
  print_failure(first);
  if (plan_.input == WorkersInput::kTerminalIsKept && failed_at_input_end(first)) warn(kTerminalIsKeptText);
  print_early_exits(event.first.time_ns);
  print_consequences(event);
  if (event.decision == RoundFailed::Decision::kRestart) return print_decision(event);
  // The summary comes last, so that it is visible on the last screen of the output.
  if (summary) writer_.line(Stream::kStderr, failure_summary(plan_, event));
}

void FailureLines::round_failed(const RoundFailed& event) {
  count("rank " + std::to_string(event.first.rank) + ": " + name_of(event.first.cause));
  if (!train()) return print_script_failure(event);
  print_failure(event.first);
  print_consequences(event);
  print_decision(event);
}

// Prints lines such as "then rank 2: signal 6 (SIGABRT)".
void FailureLines::print_consequences(const RoundFailed& event) {
  if (plan_.verbosity < 1) return;
  for (const Failure& failure : event.consequences) {
    warn("then rank " + std::to_string(failure.rank) + ": " + (failure.status ? describe(*failure.status) : failure.message));
  }
}

// Prints the decision that follows a failure. The restart policy has written event.why, for example "restart 1 of 3".
void FailureLines::print_decision(const RoundFailed& event) {
  if (event.decision != RoundFailed::Decision::kRestart) return warn(event.why);
  warn(event.why + "; the round had lasted " + format_duration(seconds_since(started_)));
  failed_ = Clock::now();
}

// Prints, at the end of a failed run: the earlier failures, the step that training had reached, and the checkpoint from which
// the next start resumes.
void FailureLines::print_progress_reached(const channel::Progress& figures, const std::string& newest_checkpoint) {
  int failures = 0;
  std::string causes;
  for (const auto& [what, count] : counts_) {
    failures += count;
    causes += (causes.empty() ? "" : ", ") + what + " (" + std::to_string(count) + ")";
  }
  if (failures > 1) warn(counted(failures, "round") + " failed: " + causes);
  if (figures.step <= 0) return;
  const std::string where =
      "training had reached step " + format_count(figures.step) + " of " + format_count(figures.steps_total);
  warn(where + (newest_checkpoint.empty() ? "" : "; the next start continues from " + newest_checkpoint));
}

}  // namespace ddprun
