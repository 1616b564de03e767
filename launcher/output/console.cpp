// Implementation of console.hpp: one function for each kind of event. Progress events arrive many times a second. The progress
// bar is therefore redrawn at most every 100 ms. If the console is not a terminal, progress lines replace the bar, and are
// printed at most every 2 s.
#include "launcher/output/console.hpp"

#include <csignal>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/overloaded.hpp"
#include "common/base/signal_name.hpp"
#include "launcher/events/event_json.hpp"
#include "launcher/events/node_notice.hpp"
#include "launcher/events/printf_text.hpp"
#include "launcher/output/worker_output_route.hpp"
#include "launcher/plan/plan_input.hpp"

namespace ddprun {
namespace {

constexpr std::int64_t kBarIntervalNs = 100'000'000;
constexpr std::int64_t kLineIntervalNs = 2'000'000'000;

const char* effect_of(const StopRequested& event) {
  switch (event.effect) {
    case StopRequested::Effect::kKills:
      return " again: killing the workers";
    case StopRequested::Effect::kNothingNew:
      return " again: already stopping the workers; press Ctrl-C twice to kill them";
    case StopRequested::Effect::kStops:
      return event.signal == SIGINT ? ": stopping the workers; press Ctrl-C again to kill them"
                                    : ": stopping the workers; press Ctrl-C twice to kill them";
  }
  check_failed("unknown effect of a signal");
}

}  // namespace

Console::Console(const Plan& plan, ConsoleFacts facts, ConsoleWriter& writer, const RoundModel& round)
    : ConsoleLines(plan, writer), facts_(std::move(facts)), round_(round), failures_(plan, writer) {
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
  std::visit([this](const auto& e) { handle(e); }, event);
}

void Console::handle(const RunStarted& event) {
  started_ns_ = event.time_ns;
  std::string head = plan_.title + ": " + counted(event.world_size, "worker");
  if (!plan_.device.empty()) head += plan_.device == "auto" ? " on the device that LibTorch selects" : " on " + plan_.device;
  if (!plan_.run_dir.empty()) head += ", run directory " + plan_.run_dir.string();
  print(train() ? 0 : 1, head);
  for (const std::string& line : facts_.opening) print(0, line);
  for (const std::string& note : plan_.notes) print(1, "note: " + note);
  if (plan_.input == WorkersInput::kTerminalIsKept) print(1, std::string("note: ") + kTerminalIsKeptText);
}

void Console::handle(const RoundStarted& event) {
  if (event.regroup) {
    if (event.world_size != workers_of_job_) print_nodes(event);
    return print(2, printed("round %d, restart count %d, regrouping", event.round, event.restart_count));
  }
  failures_.begin_round(event);
  restarted_ = event.restart_count > 0;
  meter_.restart();
  last_notice_.clear();
  if (event.nodes > 1 || plan_.rendezvous.many()) print_nodes(event);
  print(2, printed("round %d, restart count %d", event.round, event.restart_count));
}

void Console::print_nodes(const RoundStarted& event) {
  workers_of_job_ = event.world_size;
  print(0, counted(event.nodes, "node") + ", " + counted(event.world_size, "worker") + ": this is node " +
               std::to_string(event.group_rank) +
               (event.restart_count > 0 ? ", restart " + std::to_string(event.restart_count) + " of the job" : ""));
}

void Console::handle(const NodesChanged& event) {
  const std::string line = notice_line(event.notice);
  if (line.empty() || line == last_notice_) return;
  last_notice_ = line;
  using Kind = rendezvous::NodeNotice::Kind;
  const bool is_warning =
      event.notice.kind == Kind::kRefused || event.notice.kind == Kind::kSetAside || event.notice.kind == Kind::kFailing;
  if (is_warning) return warn(line);
  print(event.notice.kind == Kind::kReleased ? 1 : 0, line);
}

void Console::handle(const WorkerStarted&) {
  const auto& workers = round_.workers();
  if (static_cast<int>(workers.size()) != failures_.workers_here()) return;
  constexpr std::size_t kShown = 8;
  std::string text;
  std::size_t shown = 0;
  for (const auto& [rank, worker] : workers) {
    if (++shown > kShown) break;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " pid " + std::to_string(worker.pid);
  }
  if (workers.size() > kShown) text += " and " + std::to_string(workers.size() - kShown) + " more";
  print(train() ? 0 : 1, text);
  failures_.all_started();
}

void Console::handle(const WorkerReported& event) {
  std::visit(Overloaded{[&](const channel::Progress& message) { on_message(event.rank, message, event.time_ns); },
                        [&](const channel::Hello& message) {
                          print(2, "rank " + std::to_string(event.rank) + " runs " + message.version);
                        },
                        [&](const channel::EvalResult& message) { on_message(event.rank, message); },
                        [&](const channel::WorkerError& message) { on_message(event.rank, message); },
                        [&](const channel::CheckpointPublished& message) { on_message(event.rank, message); },
                        [&](const channel::PhaseChange& message) { on_message(event.rank, message); },
                        Ignored<channel::Pace, channel::SignalReceived, channel::StopReady, channel::SavesOnStop,
                                channel::Regroupable, channel::RegroupReady, channel::GroupFormed, channel::StandbyReady,
                                channel::Position, channel::StoreRequest>{}},
             event.message);
}

void Console::on_message(int rank, const channel::Progress& message, std::int64_t time_ns) {
  if (rank != 0) return;
  meter_.add(message, time_ns);
  const bool last = message.steps_total > 0 && message.step == message.steps_total && message.step != steps_;
  steps_ = message.step;
  epochs_ = message.epochs;
  if (plan_.verbosity < 0) return;
  if (!last && time_ns - drawn_ns_ < (bar_ ? kBarIntervalNs : kLineIntervalNs)) return;
  drawn_ns_ = time_ns;
  if (bar_) {
    writer_.set_bar(progress_bar(meter_.shown(), writer_.columns()));
  } else if (message.step > 0) {
    print(0, progress_line(meter_.shown()));
  }
}

void Console::on_message(int, const channel::EvalResult& message) {
  evaluation_ = message;
  const std::string epochs = epochs_ > 0 ? "/" + std::to_string(epochs_) : "";
  print(0, "epoch " + std::to_string(message.epoch + 1) + epochs + ", step " + format_count(message.step) + ": test " +
               metrics_text(message.figures) + " on " + counted(message.samples, "sample"));
}

void Console::on_message(int rank, const channel::WorkerError& message) {
  if (!message.fatal) {
    // The worker also prints this warning to its stderr. So the console prints the warning only if it does not show that
    // stderr, and only once.
    const bool is_new = warnings_.insert({rank, message.message}).second;
    if (is_new && !failures_.shows_all_stderr()) warn("rank " + std::to_string(rank) + ": " + message.message);
  } else {
    print(1, "rank " + std::to_string(rank) + " reports: " + message.message);
  }
}

void Console::on_message(int, const channel::CheckpointPublished& message) {
  newest_checkpoint_ = message.path;
  print(1, "checkpoint of step " + format_count(message.step) +
               printed(" (%.1f MB, training paused for %.0f ms): ", static_cast<double>(message.bytes) / 1e6,
                       1000 * message.pause_s) +
               message.path);
}

void Console::on_message(int rank, const channel::PhaseChange& message) {
  // Only ddptrain reports the step from which it resumes. A script's first PhaseChange may follow its first steps and would
  // look like a resume.
  if (train() && rank == 0 && message.phase == channel::Phase::kRunning && steps_ == 0 && message.step > 0) {
    print(0, "continuing from step " + format_count(message.step));
  }
}

void Console::handle(const WorkerEnded& event) {
  print(2, "rank " + std::to_string(event.rank) + " (pid " + std::to_string(event.pid) + ") ended: " + describe(event.status) +
               (event.stop_requested ? ", as requested" : ""));
  failures_.worker_ended(event);
}

void Console::handle(const RoundFailed& event) {
  writer_.set_bar("");
  failures_.round_failed(event);
}

void Console::handle(const Regrouped& event) {
  std::string text;
  if (event.kept.empty()) {
    const std::string here = plan_.rendezvous.many() ? " on this node" : "";
    text = "no worker" + here + " still has the training state: continuing from step " + format_count(event.step);
  } else {
    text = ranks_text(event.kept) + " kept step " + format_count(event.step);
  }
  if (!event.replaced.empty()) text += "; " + ranks_text(event.replaced) + " replaced";
  if (!event.by_standby.empty() && event.by_standby == event.replaced) {
    text += event.replaced.size() == 1 ? " by a standby" : " by standbys";
  } else if (!event.by_standby.empty()) {
    text += " (" + ranks_text(event.by_standby) + " by a standby)";
  }
  print(0, text + printed(" in %.2f s", event.seconds));
}

void Console::handle(const RegroupFailed& event) {
  warn("the workers could not regroup (" + event.why + "): all of them restart from the newest checkpoint");
}

void Console::handle(const StandbyWaits& event) {
  const std::string pid = "(pid " + std::to_string(event.pid) + ")";
  if (train()) return print(1, "standby worker ready " + pid);
  print(1, "spare interpreter ready " + pid + ": loaded" + printed(" in %.1f s", event.loaded_s) + ", holds" +
               printed(" %.0f MB", static_cast<double>(event.memory_bytes) / 1e6));
}

void Console::handle(const StandbyEnded& event) {
  std::string text = train() ? "a standby worker" : "a spare interpreter";
  if (event.pid > 0) text += " (pid " + std::to_string(event.pid) + ")";
  text += event.status ? " ended while it waited: " + describe(*event.status) : " could not be started";
  if (!event.message.empty()) text += ": " + event.message;
  if (event.next_in_s < 0) return warn(text + "; workers start without spares");
  warn(text + printed("; the next one is started in %.0f s", event.next_in_s));
}

void Console::handle(const StopRequested& event) {
  writer_.set_bar("");
  if (plan_.verbosity < 0) return;
  // The message states the time limit only for scripts, since ddptrain's workers save first.
  const bool patient = !train() && event.effect == StopRequested::Effect::kStops;
  const double seconds = std::chrono::duration<double>(plan_.shutdown_timeout).count();
  warn(signal_name(event.signal) + effect_of(event) +
       (patient ? "; they have " + format_duration(seconds) + " to end" : std::string()));
  if (train() || event.effect != StopRequested::Effect::kStops) return;
  // Ranks that exited early may be the reason why the script hung and the user stopped it, so they are listed.
  failures_.print_early_exits(event.time_ns);
}

void Console::handle(const CutOff& event) {
  writer_.set_bar("");
  failures_.count("this node: cut off");
  warn(describe(event));
}

void Console::handle(const StopIsSlow& event) {
  writer_.set_bar("");
  warn(describe(event));
}

void Console::handle(const WorkersLeft& event) {
  print(0, describe(event));
}

// A rank near the threshold may become a straggler and recover again every second. So the console reports a straggler at most
// once per minute for each rank, and then also its recovery. JSON events and the report contain all changes.
void Console::handle(const Straggler& event) {
  constexpr std::int64_t kMinLineInterval = 60'000'000'000;
  StragglerLines& lines = straggler_lines_[event.rank];
  if (event.ended) {
    if (std::exchange(lines.is_open, false)) print(0, describe(event));
    return;
  }
  const std::int64_t since = event.time_ns - lines.newest_ns;
  if (lines.newest_ns != 0 && since >= 0 && since < kMinLineInterval) return;
  lines = {.newest_ns = event.time_ns, .is_open = true};
  print(0, describe(event));
}

void Console::handle(const HelperIgnored& event) {
  if (!std::exchange(helper_ignored_, true)) warn(describe(event));
}

// After a restart, a Python script that imports PyTorch prints nothing for many seconds. So a line reports the time until the
// first output. The line is omitted if this time is below 3 s.
void Console::handle(const FirstOutput& event) {
  constexpr double kMinReportedSeconds = 3;
  if (restarted_ && event.seconds >= kMinReportedSeconds)
    print(0, printed("first output %.0f s after the restart", event.seconds));
}

void Console::handle(const InputWasRead& event) {
  warn(event.what);
}

void Console::handle(const RunDirectoryRemoved& event) {
  warn("the run directory " + event.path + " was removed or renamed while the job was running: the job continues and " +
       "writes to a new directory with the same name");
}

void Console::handle(const RunEnded& event) {
  writer_.set_bar("");
  failures_.print_killed();
  const double wall_seconds = static_cast<double>(event.time_ns - started_ns_) / 1e9;
  const std::string time = format_duration(event.seconds >= 0 ? event.seconds : wall_seconds);
  const std::string restarts = event.restarts_used > 0 ? ", " + counted(event.restarts_used, "restart") : "";
  if (event.exit_code == 0) {
    if (!train()) return print(1, "done in " + time + restarts);
    std::string text = "done: ";
    if (evaluation_ && !evaluation_->figures.empty()) text += "test " + headline_of(evaluation_->figures) + ", ";
    if (steps_ > 0) text += counted(steps_, "step") + " ";
    writer_.line(Stream::kStdout, text + "in " + time + restarts + ", " + plan_.run_dir.string());
    return;
  }
  if (train()) failures_.print_progress_reached(meter_.shown().progress, newest_checkpoint_);
  warn_in_red("ended with exit code " + std::to_string(event.exit_code) + (event.why.empty() ? "" : ": " + event.why) + " (" +
              time + restarts + (facts_.report.empty() ? "" : "; report: " + facts_.report.string()) + ")");
}

}  // namespace ddprun
