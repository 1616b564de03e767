// See console.hpp.
#include "launcher/output/console.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/overloaded.hpp"
#include "common/base/signal_name.hpp"
#include "launcher/events/event_json.hpp"
#include "launcher/events/node_notice.hpp"
#include "launcher/events/printed.hpp"
#include "launcher/output/console_failures.hpp"
#include "launcher/output/worker_output_route.hpp"
#include "launcher/plan/plan_input.hpp"

namespace ddprun {
namespace {

constexpr std::int64_t kBarEveryNs = 100'000'000;
constexpr std::int64_t kLineEveryNs = 2'000'000'000;
constexpr std::size_t kEvidenceLines = 8;

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

std::string counted(std::int64_t number, const char* one) {
  return format_count(number) + " " + one + (number == 1 ? "" : "s");
}

// Returns each distinct line once, in the order of first occurrence, with its count.
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

const char* effect_of(const StopRequested& event) {
  switch (event.effect) {
    case StopRequested::Effect::kKills:
      return " again: killing the workers";
    case StopRequested::Effect::kNothingNew:
      return " again: the workers are being stopped; Ctrl-C twice kills them";
    case StopRequested::Effect::kStops:
      return event.signal == SIGINT ? ": stopping the workers; once more kills them"
                                    : ": stopping the workers; Ctrl-C twice kills them";
  }
  check_failed("a signal has an effect that there is not");
}

}  // namespace

Console::Console(const Plan& plan, ConsoleFacts facts, ConsoleWriter& writer)
    : plan_(plan), facts_(std::move(facts)), writer_(writer) {
  writer_.set_rules(
      {.json = plan.json, .show_stdout = !train() || plan.verbosity >= 0, .may_drop = kept_files(plan) == KeptFiles::kAll});
  bar_ = !plan.json && plan.verbosity >= 0 && (writer.is_terminal(Stream::kStderr) || writer.is_terminal(Stream::kStdout));
}

void Console::on(const RunEvent& event) {
  if (plan_.json) {
    const std::string line = event_json_line(event);
    if (!line.empty()) writer_.event(line);
    return;
  }
  std::visit([this](const auto& e) { see(e); }, event);
}

void Console::say(int verbosity, const std::string& text) {
  if (verbosity > plan_.verbosity) return;
  writer_.line(train() ? Stream::kStdout : Stream::kStderr, train() ? text : "ddprun: " + text);
}

void Console::complain(const std::string& text) {
  writer_.line(Stream::kStderr, "ddprun: " + text);
}

// Red, so that a failure stands out among the workers' lines.
void Console::complain_in_red(const std::string& text) {
  if (!writer_.colours(Stream::kStderr)) return complain(text);
  writer_.line(Stream::kStderr, "\x1b[1;31mddprun: " + text + "\x1b[0m");
}

void Console::see(const RunStarted& event) {
  started_ns_ = event.time_ns;
  std::string head = plan_.title + ": " + counted(event.world_size, "worker");
  if (!plan_.device.empty()) head += plan_.device == "auto" ? " on the device that LibTorch finds" : " on " + plan_.device;
  if (!plan_.run_dir.empty()) head += ", run directory " + plan_.run_dir.string();
  say(train() ? 0 : 1, head);
  for (const std::string& line : facts_.opening) say(0, line);
  for (const std::string& note : plan_.notes) say(1, "note: " + note);
  if (plan_.input == WorkersInput::kTerminalIsKept) say(1, std::string("note: ") + kTerminalIsKeptText);
}

void Console::see(const RoundStarted& event) {
  if (event.regroup) {
    if (event.world_size != workers_of_job_) say_nodes(event);
    return say(2, printed("round %d, restart count %d, regrouping", event.round, event.restart_count));
  }
  tell_killed();
  pids_.clear();
  left_.clear();
  round_began_ = Clock::now();
  restarted_ = event.restart_count > 0;
  workers_here_ = event.workers_here > 0 ? event.workers_here : event.world_size;
  meter_.restart();
  last_notice_.clear();
  if (event.nodes > 1 || plan_.rendezvous.many()) say_nodes(event);
  say(2, printed("round %d, restart count %d", event.round, event.restart_count));
}

void Console::say_nodes(const RoundStarted& event) {
  workers_of_job_ = event.world_size;
  say(0, counted(event.nodes, "node") + ", " + counted(event.world_size, "worker") + ": this is node " +
             std::to_string(event.group_rank) +
             (event.restart_count > 0 ? ", restart " + std::to_string(event.restart_count) + " of the job" : ""));
}

void Console::see(const NodesChanged& event) {
  const std::string line = notice_line(event.notice);
  if (line.empty() || line == last_notice_) return;
  last_notice_ = line;
  using Kind = rendezvous::NodeNotice::Kind;
  if (event.notice.kind == Kind::kRefused || event.notice.kind == Kind::kSetAside) return complain(line);
  say(event.notice.kind == Kind::kReleased ? 1 : 0, line);
}

void Console::see(const WorkerStarted& event) {
  pids_[event.rank] = event.pid;
  if (static_cast<int>(pids_.size()) != workers_here_) return;
  constexpr std::size_t kShown = 8;
  std::string text;
  std::size_t shown = 0;
  for (const auto& [rank, pid] : pids_) {
    if (++shown > kShown) break;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " pid " + std::to_string(pid);
  }
  if (pids_.size() > kShown) text += " and " + std::to_string(pids_.size() - kShown) + " more";
  say(train() ? 0 : 1, text);
  if (failed_) say(0, printed("restarted %.2f s after the failure", seconds_since(*failed_)));
  failed_.reset();
}

void Console::see(const WorkerSpoke& event) {
  std::visit(Overloaded{[&](const channel::Progress& message) { hear(event.rank, message, event.time_ns); },
                        [&](const channel::Hello& message) {
                          say(2, "rank " + std::to_string(event.rank) + " runs " + message.version);
                        },
                        [&](const channel::EvalResult& message) { hear(event.rank, message); },
                        [&](const channel::WorkerError& message) { hear(event.rank, message); },
                        [&](const channel::CheckpointPublished& message) { hear(event.rank, message); },
                        [&](const channel::PhaseChange& message) { hear(event.rank, message); },
                        Ignored<channel::Pace, channel::SignalReceived, channel::StopReady, channel::SavesOnStop,
                                channel::Regroupable, channel::RegroupReady, channel::GroupFormed, channel::StandbyReady,
                                channel::Position, channel::StoreRequest>{}},
             event.message);
}

void Console::hear(int rank, const channel::Progress& message, std::int64_t time_ns) {
  if (rank != 0) return;
  meter_.add(message, time_ns);
  const bool last = message.steps_total > 0 && message.step == message.steps_total && message.step != steps_;
  steps_ = message.step;
  epochs_ = message.epochs;
  steps_total_ = message.steps_total;
  if (plan_.verbosity < 0) return;
  if (!last && time_ns - drawn_ns_ < (bar_ ? kBarEveryNs : kLineEveryNs)) return;
  drawn_ns_ = time_ns;
  if (bar_) {
    writer_.set_bar(progress_bar(meter_.shown(), writer_.columns()));
  } else if (message.step > 0) {
    say(0, progress_line(meter_.shown()));
  }
}

void Console::hear(int, const channel::EvalResult& message) {
  evaluation_ = message;
  const std::string epochs = epochs_ > 0 ? "/" + std::to_string(epochs_) : "";
  say(0, "epoch " + std::to_string(message.epoch + 1) + epochs + ", step " + format_count(message.step) + ": test " +
             figures_text(message.figures) + " on " + counted(message.samples, "sample"));
}

void Console::hear(int rank, const channel::WorkerError& message) {
  if (!message.fatal) {
    // Shown once, and only where the worker's stderr is not: the worker prints it as well.
    const bool is_new = warnings_.insert({rank, message.message}).second;
    if (is_new && !sees_all_stderr()) complain("rank " + std::to_string(rank) + ": " + message.message);
  } else {
    say(1, "rank " + std::to_string(rank) + " reports: " + message.message);
  }
}

void Console::hear(int, const channel::CheckpointPublished& message) {
  newest_checkpoint_ = message.path;
  say(1, "checkpoint of step " + format_count(message.step) +
             printed(" (%.1f MB, training stood still for %.0f ms): ", static_cast<double>(message.bytes) / 1e6,
                     1000 * message.pause_s) +
             message.path);
}

void Console::hear(int rank, const channel::PhaseChange& message) {
  // A script reports its first progress after its first step.
  if (train() && rank == 0 && message.phase == channel::Phase::kRunning && steps_ == 0 && message.step > 0) {
    say(0, "going on from step " + format_count(message.step));
  }
}

void Console::see(const WorkerEnded& event) {
  say(2, "rank " + std::to_string(event.rank) + " (pid " + std::to_string(event.pid) + ") ended: " + describe(event.status) +
             (event.asked_to_stop ? ", as it was told" : ""));
  if (event.asked_to_stop && event.status.signal == SIGKILL) killed_.push_back(event.rank);
  if (!event.status.ok() || event.asked_to_stop) return;
  left_[event.rank] = event.time_ns;
}

// Reported only after all workers have ended. SIGKILL may have prevented a worker from writing its files.
void Console::tell_killed() {
  if (killed_.empty()) return;
  std::sort(killed_.begin(), killed_.end());
  say(0,
      ranks_text(killed_) + " did not stop when told to and " + (killed_.size() == 1 ? "was" : "were") + " killed (SIGKILL)");
  killed_.clear();
}

bool Console::sees_stderr_of(int local_rank) const {
  return route_of(plan_.output, kept_files(plan_), local_rank, Stream::kStderr).shown != OutputRoute::Shown::kNo;
}

bool Console::sees_all_stderr() const {
  for (int local_rank = 0; local_rank < workers_here_; ++local_rank) {
    if (!sees_stderr_of(local_rank)) return false;
  }
  return true;
}

void Console::tell_failure(const Failure& failure) {
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
  complain_in_red(head);
  for (const auto& [line, times] : with_counts(failure.stderr_tail)) {
    const bool said_above = !failure.message.empty() && line.find(failure.message) != std::string::npos;
    const std::string often = times > 1 ? "    (" + std::to_string(times) + " times)" : "";
    if (said_above) continue;
    std::string shown = "    | ";
    shown.append(line).append(often);
    writer_.line(Stream::kStderr, shown);
  }
  const std::size_t shown = plan_.verbosity > 0 ? failure.evidence.size() : std::min(failure.evidence.size(), kEvidenceLines);
  for (std::size_t i = 0; i < shown; ++i) writer_.line(Stream::kStderr, "    " + failure.evidence[i]);
  if (const std::size_t left = failure.evidence.size() - shown; left > 0) {
    writer_.line(Stream::kStderr, "    ... " + counted(static_cast<std::int64_t>(left), "line") + " more in the report");
  }
  if (!failure.log_path.empty()) complain("its log is " + failure.log_path);
}

// Worker output that this console has already shown is not repeated. The last stderr line is the fallback reason if no better
// one is known.
void Console::tell_script_failure(const RoundFailed& event) {
  Failure first = event.first;
  const bool has_reason = !first.message.empty();
  if (!has_reason && !first.stderr_tail.empty() && first.cause == Cause::kExitCode) first.message = first.stderr_tail.back();
  first.message = first.message.substr(0, first.message.find('\n'));
  const bool summary = event.decision == RoundFailed::Decision::kGiveUp && plan_.verbosity >= 0 && first.cause != Cause::kSpawn;
  if (sees_stderr_of(first.local_rank) || (summary && !first.call_stack.empty())) first.stderr_tail.clear();
  tell_failure(first);
  if (plan_.input == WorkersInput::kTerminalIsKept && read_past_the_end(first)) complain(kTerminalIsKeptText);
  for (const std::string& line : early_leavers(left_, event.first)) complain(line);
  for (const Failure& failure : event.consequences) {
    if (plan_.verbosity >= 1) complain(consequence_line(failure));
  }
  if (event.decision == RoundFailed::Decision::kRestart) return tell_decision(event);
  // The summary is printed last, so that the output ends with the reason why the job ended.
  if (summary) writer_.line(Stream::kStderr, failure_summary(plan_, event));
}

void Console::see(const RoundFailed& event) {
  writer_.set_bar("");
  ++failures_["rank " + std::to_string(event.first.rank) + ": " + name_of(event.first.cause)];
  if (!train()) return tell_script_failure(event);
  tell_failure(event.first);
  for (const Failure& failure : event.consequences) {
    if (plan_.verbosity < 1) break;
    complain(consequence_line(failure));
  }
  tell_decision(event);
}

void Console::tell_decision(const RoundFailed& event) {
  if (event.decision != RoundFailed::Decision::kRestart) return complain(event.why);
  complain(event.why + "; the round had lasted " + format_duration(seconds_since(round_began_)));
  failed_ = Clock::now();
}

void Console::see(const Regrouped& event) {
  std::string text;
  if (event.kept.empty()) {
    const std::string here = plan_.rendezvous.many() ? " here" : "";
    text = "no worker was left" + here + " that held the training state: going on from step " + format_count(event.step);
  } else {
    text = ranks_text(event.kept) + " kept step " + format_count(event.step);
  }
  if (!event.replaced.empty()) text += "; " + ranks_text(event.replaced) + " replaced";
  if (!event.by_standby.empty() && event.by_standby == event.replaced) {
    text += event.replaced.size() == 1 ? " by a standby" : " by standbys";
  } else if (!event.by_standby.empty()) {
    text += " (" + ranks_text(event.by_standby) + " by a standby)";
  }
  say(0, text + printed(" in %.2f s", event.seconds));
}

void Console::see(const RegroupFailed& event) {
  complain("the workers could not regroup (" + event.why + "): starting all of them again from the newest checkpoint");
}

void Console::see(const StandbyWaits& event) {
  const std::string pid = "(pid " + std::to_string(event.pid) + ")";
  if (train()) return say(1, "a standby worker waits " + pid);
  say(1, "a spare interpreter waits " + pid + ": it loaded" + printed(" in %.1f s", event.loaded_s) + " and holds" +
             printed(" %.0f MB", static_cast<double>(event.memory_bytes) / 1e6));
}

void Console::see(const StandbyEnded& event) {
  std::string text = train() ? "a standby worker" : "a spare interpreter";
  if (event.pid > 0) text += " (pid " + std::to_string(event.pid) + ")";
  text += event.status ? " ended while it waited: " + describe(*event.status) : " could not be started";
  if (!event.message.empty()) text += ": " + event.message;
  if (event.next_in_s < 0) return complain(text + "; workers start without spares");
  complain(text + printed("; the next one is started in %.0f s", event.next_in_s));
}

void Console::see(const StopRequested& event) {
  writer_.set_bar("");
  if (plan_.verbosity < 0) return;
  const bool patient = !train() && event.effect == StopRequested::Effect::kStops;  // saving has its own time limit
  const double seconds = std::chrono::duration<double>(plan_.shutdown_timeout).count();
  complain(signal_name(event.signal) + effect_of(event) +
           (patient ? "; they have " + format_duration(seconds) + " to end" : std::string()));
  if (train() || event.effect != StopRequested::Effect::kStops) return;
  // A rank that exited early may be the reason why the script hung and the user stopped it.
  Failure stop;
  stop.time_ns = event.time_ns;
  for (const std::string& line : early_leavers(left_, stop)) complain(line);
}

void Console::see(const CutOff& event) {
  writer_.set_bar("");
  ++failures_["this node: cut off"];
  complain(describe(event));
}

void Console::see(const StopIsSlow& event) {
  writer_.set_bar("");
  complain(describe(event));
}

void Console::see(const WorkersLeft& event) {
  say(0, describe(event));
}

// A rank close to the threshold may become slow and recover every second. JSON events and the report contain all changes.
void Console::see(const Straggler& event) {
  constexpr std::int64_t kLeastBetween = 60'000'000'000;
  StragglerLines& lines = straggler_lines_[event.rank];
  if (event.ended) {
    if (std::exchange(lines.is_open, false)) say(0, describe(event));
    return;
  }
  const std::int64_t since = event.time_ns - lines.newest_ns;
  if (lines.newest_ns != 0 && since >= 0 && since < kLeastBetween) return;
  lines = {.newest_ns = event.time_ns, .is_open = true};
  say(0, describe(event));
}

void Console::see(const HelperIgnored& event) {
  if (!std::exchange(helper_ignored_, true)) complain(describe(event));
}

// A script that loads PyTorch prints nothing for a long time after a restart. A program that prints immediately needs no such
// line.
void Console::see(const FirstOutput& event) {
  constexpr double kWorthSaying = 3;
  if (restarted_ && event.seconds >= kWorthSaying) say(0, printed("first output %.0f s after the restart", event.seconds));
}

void Console::see(const InputWasRead& event) {
  complain(event.what);
}

void Console::see(const RunDirectoryRemoved& event) {
  complain("the run directory " + event.path +
           " was removed or renamed while the job runs: the job goes on, and what it writes " +
           "from now on goes to a new one of that name");
}

// Adds context that the last failure lacks: earlier failures, the step that training has reached, and where the next start
// resumes.
void Console::tell_where_it_stands() {
  int failures = 0;
  std::string causes;
  for (const auto& [what, count] : failures_) {
    failures += count;
    causes += (causes.empty() ? "" : ", ") + what + " (" + std::to_string(count) + ")";
  }
  if (failures > 1) complain(counted(failures, "round") + " failed: " + causes);
  const channel::Progress figures = meter_.shown().progress;
  if (figures.step <= 0) return;
  const std::string where =
      "training had come to step " + format_count(figures.step) + " of " + format_count(figures.steps_total);
  complain(where + (newest_checkpoint_.empty() ? "" : "; the next start goes on from " + newest_checkpoint_));
}

void Console::see(const RunEnded& event) {
  writer_.set_bar("");
  tell_killed();
  const double by_the_wall = static_cast<double>(event.time_ns - started_ns_) / 1e9;
  const std::string time = format_duration(event.seconds >= 0 ? event.seconds : by_the_wall);
  const std::string restarts = event.restarts_used > 0 ? ", " + counted(event.restarts_used, "restart") : "";
  if (event.exit_code == 0) {
    if (!train()) return say(1, "done in " + time + restarts);
    std::string text = "done: ";
    if (evaluation_ && !evaluation_->figures.empty()) text += "test " + headline_of(evaluation_->figures) + ", ";
    if (steps_ > 0) text += counted(steps_, "step") + " ";
    writer_.line(Stream::kStdout, text + "in " + time + restarts + ", " + plan_.run_dir.string());
    return;
  }
  if (train()) tell_where_it_stands();
  complain_in_red("ended with exit code " + std::to_string(event.exit_code) + (event.why.empty() ? "" : ": " + event.why) +
                  " (" + time + restarts + (facts_.report.empty() ? "" : "; report: " + facts_.report.string()) + ")");
}

}  // namespace ddprun
