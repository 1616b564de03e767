// Implementation of report_document.hpp: the constructor, which continues an earlier report, and one add() for each kind of
// event.
#include "launcher/report/report_document.hpp"

#include <algorithm>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/overloaded.hpp"
#include "common/base/signal_name.hpp"
#include "common/base/version.hpp"
#include "launcher/events/event_json.hpp"
#include "launcher/events/node_notice.hpp"

namespace ddprun {
namespace {

using Json = ReportJson;

constexpr const char* kUnfinished =
    "the end of the run is missing: the agent was killed, the machine went down, or the report could not be written (disk "
    "full?)";

bool is_report(const Json& document) {
  return document.is_object() && document.contains("version") && document["version"] == kReportVersion &&
         document.contains("rounds") && document["rounds"].is_array() && document.contains("invocations") &&
         document["invocations"].is_array() && document.contains("time") && document["time"].is_object();
}

}  // namespace

ReportDocument::ReportDocument(ReportFacts facts, std::string host, int pid, const std::optional<std::string>& earlier)
    : facts_(std::move(facts)), host_(std::move(host)), pid_(pid) {
  document_ = Json{{"version", kReportVersion}, {"ddprun", kVersion}, {"title", facts_.title}};
  if (earlier) continue_from(Json::parse(*earlier, nullptr, false));
  if (!facts_.run_dir.empty()) document_["run_dir"] = facts_.run_dir;
  const auto add_missing = [this](const char* name, Json value) {
    if (!document_.contains(name)) document_[name] = std::move(value);
  };
  add_missing("invocations", Json::array());
  add_missing("rounds", Json::array());
  add_missing("checkpoints", {{"published", 0}, {"pause_s", 0.0}, {"latest", nullptr}});
  add_missing("last_step", nullptr);
  add_missing("evaluation", nullptr);
  add_missing("time", Json::object());
  TimeAccount::Seconds seconds{};
  for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] = report_number_at(document_["time"], TimeAccount::kNames[i]);
  account_ = TimeAccount(seconds);
  if (!document_["time"].contains("lost_s")) document_["time"]["lost_s"] = 0.0;
  if (!document_.contains("failures") || !document_["failures"].is_object()) document_["failures"] = Json::object();
  add_missing("steps_lost", 0);
  restarts_before_ = document_.contains("restarts") ? document_["restarts"].value("used", std::int64_t{0}) : 0;
  document_["restarts"] = Json{
      {"used", restarts_before_}, {"budget", facts_.restart_budget}, {"refilled_by_progress", facts_.refilled_by_progress}};
  document_["exit"] = nullptr;
}

// Continues the report of the previous invocation. If that invocation was killed, its guardian has filled in "exit". If the
// guardian was killed as well, "exit" is still null, and the invocation is marked as unfinished.
void ReportDocument::continue_from(Json earlier) {
  earlier_ = is_report(earlier) ? Earlier::kWhole : Earlier::kDamaged;
  if (earlier_ == Earlier::kDamaged) return;
  document_ = std::move(earlier);
  document_["ddprun"] = kVersion;
  document_["title"] = facts_.title;
  const bool completed = document_.contains("exit") && !document_["exit"].is_null();
  if (!completed) earlier_ = Earlier::kUnfinished;
  const Json exit = completed ? document_["exit"] : Json{{"code", nullptr}, {"why", kUnfinished}};
  if (document_["invocations"].empty() || !document_["invocations"].back().is_object()) return;
  Json& last = document_["invocations"].back();
  if (!last.contains("exit") || last["exit"].is_null()) last["exit"] = exit;
}

std::string ReportDocument::earlier_problem() const {
  return earlier_ == Earlier::kUnfinished ? "the previous run left an unfinished report: " + std::string(kUnfinished) : "";
}

Json& ReportDocument::round() {
  check(!document_["rounds"].empty(), "the report has no rounds");
  return document_["rounds"].back();
}

Json& ReportDocument::invocation() {
  check(!document_["invocations"].empty(), "the report has no invocation");
  return document_["invocations"].back();
}

bool ReportDocument::has_round() {
  return !document_["rounds"].empty() && round().value("invocation", -1) == invocation_number();
}

void ReportDocument::set_time(const TimeAccount::Seconds& seconds) {
  for (std::size_t i = 0; i < seconds.size(); ++i) document_["time"][TimeAccount::kNames[i]] = seconds[i];
}

std::string ReportDocument::text() {
  set_time(account_.seconds());
  return rounds_text_.text_of(document_);
}

std::string ReportDocument::line(std::int64_t time_ns, std::int64_t clock_was_set_ns) {
  set_time(account_.seconds_at(time_ns, clock_was_set_ns));
  return document_.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ReportDocument::Write ReportDocument::on(const RunEvent& event, std::int64_t clock_was_set_ns, std::int64_t latest_ns) {
  needed_ = Write::kNo;
  if (!std::holds_alternative<RunStarted>(event) && document_["invocations"].empty()) return needed_;
  account_.on(event, clock_was_set_ns, latest_ns);
  std::visit(Overloaded{[this](const auto& each) { add(each); }, Ignored<StandbyWaits, WorkerContinued, FirstOutput>{}}, event);
  return needed_;
}

void ReportDocument::add(const RunStarted& event) {
  document_["invocations"].push_back(Json{{"number", invocation_number() + 1},
                                          {"started_ns", event.time_ns},
                                          {"ended_ns", nullptr},
                                          {"host", host_},
                                          {"pid", pid_},
                                          {"world_size", event.world_size},
                                          {"command", facts_.command},
                                          {"exit", nullptr}});
  if (facts_.slurm) invocation()["slurm"] = Json{{"job", facts_.slurm->job}, {"restarts", facts_.slurm->restarts}};
}

void ReportDocument::add(const RoundStarted& event) {
  document_["rounds"].push_back(Json{{"round", event.round},
                                     {"invocation", invocation_number()},
                                     {"restart_count", event.restart_count},
                                     {"world_size", event.world_size},
                                     {"nodes", event.nodes},
                                     {"group_rank", event.group_rank},
                                     {"regroup", nullptr},
                                     {"started_ns", event.time_ns},
                                     {"ended_ns", nullptr},
                                     {"workers", Json::array()},
                                     {"first_cause", nullptr},
                                     {"consequences", Json::array()},
                                     {"decision", nullptr},
                                     {"why", nullptr}});
  if (rounds_text_.appended(document_["rounds"])) {
    document_["rounds_left_out"] = report_integer_at(document_, "rounds_left_out") + 1;
  }
  document_["restarts"]["used"] = restarts_before_ + event.restart_count;
  needed_ = facts_.kept == ReportFacts::Kept::kAlways || document_["rounds"].size() > 1 ? Write::kDeferred : Write::kLater;
}

void ReportDocument::count_failure(const char* cause) {
  Json& failures = document_["failures"];
  failures[cause] = report_integer_at(failures, cause) + 1;
}

// The number of entries has a limit, since a node may join and leave repeatedly for days.
void ReportDocument::add(const NodesChanged& event) {
  constexpr std::size_t kMaxNodeEvents = 1000;
  if (event.notice.kind == rendezvous::NodeNotice::Kind::kWaiting) return;
  Json& nodes = invocation()["nodes"];
  if (nodes.size() >= kMaxNodeEvents) return;
  nodes.push_back(Json{{"event", notice_keyword(event.notice.kind)}, {"text", event.notice.text}, {"time_ns", event.time_ns}});
}

void ReportDocument::add(const CutOff& event) {
  count_failure(kCutOff);
  if (!has_round()) return;
  close_round();
  round()["ended_ns"] = event.time_ns;
  round()["first_cause"] = Json{{"cause", kCutOff},
                                {"message", describe(event)},
                                {"seconds", event.seconds},
                                {"time_ns", event.time_ns},
                                {"host", host_}};
  round()["decision"] = "rejoin";
  round()["why"] = "this node searches for the other nodes";
  needed_ = Write::kNow;
}

void ReportDocument::add(const WorkerStarted& event) {
  if (!has_round()) return;
  Json worker{{"rank", event.rank}, {"pid", event.pid}, {"started_ns", event.time_ns}};
  if (event.standby) worker["standby"] = true;
  round()["workers"].push_back(std::move(worker));
}

void ReportDocument::add(const WorkerReported& event) {
  note_first_step_of_round();
  std::visit(
      Overloaded{[&](const channel::Progress& progress) {
                   if (event.rank == 0) note(progress);
                 },
                 [&](const channel::EvalResult& evaluation) { note(evaluation); },
                 [&](const channel::CheckpointPublished& published) { note(published); },
                 Ignored<channel::Hello, channel::PhaseChange, channel::Pace, channel::WorkerError, channel::SignalReceived,
                         channel::StopReady, channel::SavesOnStop, channel::Regroupable, channel::RegroupReady,
                         channel::GroupFormed, channel::StandbyReady, channel::Position, channel::StoreRequest>{}},
      event.message);
}

void ReportDocument::note(const channel::Progress& progress) {
  document_["last_step"] = progress.step;
  if (!facts_.of_script || (!progress.loss && progress.figures.empty())) return;
  Json newest{{"step", progress.figures_step.value_or(progress.step)}};
  for (const Metric& figure : progress.figures) newest[figure.name] = figure.value;
  if (progress.loss) newest["loss"] = *progress.loss;
  document_["figures"] = std::move(newest);
}

void ReportDocument::note(const channel::EvalResult& evaluation) {
  Json found{{"step", evaluation.step}, {"epoch", evaluation.epoch}};
  for (const Metric& figure : evaluation.figures) found[figure.name] = figure.value;
  found["samples"] = evaluation.samples;
  document_["evaluation"] = std::move(found);
}

void ReportDocument::note(const channel::CheckpointPublished& published) {
  Json& checkpoints = document_["checkpoints"];
  checkpoints["published"] = checkpoints.value("published", std::int64_t{0}) + 1;
  checkpoints["pause_s"] = checkpoints.value("pause_s", 0.0) + published.pause_s;
  checkpoints["latest"] =
      Json{{"step", published.step}, {"path", published.path}, {"bytes", published.bytes}, {"save_s", published.save_s}};
}

void ReportDocument::note_first_step_of_round() {
  const std::int64_t from = account_.round().from_step;
  if (from < 0 || !has_round() || round().contains("from_step")) return;
  round()["from_step"] = from;
  count_lost_steps(from);
}

// Counts the steps that are lost because training resumes at step `resumes_at`. These are the later steps of the last round
// that trained; they must be repeated. The lost time is estimated from that round: if 10 of its 100 steps are lost, a tenth of
// its training time is lost.
void ReportDocument::count_lost_steps(std::int64_t resumes_at) {
  Json& rounds = document_["rounds"];
  const auto ran = std::find_if(rounds.rbegin() + 1, rounds.rend(),
                                [](const Json& one) { return one.is_object() && one.contains("reached_step"); });
  if (ran == rounds.rend() || ran->contains("steps_lost")) return;
  Json& before = *ran;
  rounds_text_.changed(static_cast<std::size_t>(rounds.rend() - ran - 1));
  const std::int64_t reached = report_integer_at(before, "reached_step");
  const std::int64_t lost = std::max<std::int64_t>(0, reached - resumes_at);
  before["steps_lost"] = lost;
  document_["steps_lost"] = report_integer_at(document_, "steps_lost") + lost;
  const std::int64_t done = reached - report_integer_at(before, "from_step");
  if (done <= 0) return;
  const double share = std::min(1.0, static_cast<double>(lost) / static_cast<double>(done));
  document_["time"]["lost_s"] = report_number_at(document_["time"], "lost_s") + report_number_at(before, "trained_s") * share;
}

void ReportDocument::close_round() {
  if (account_.round().from_step < 0) return;
  round()["reached_step"] = account_.round().reached_step;
  round()["trained_s"] = account_.round().trained_s;
}

void ReportDocument::add(const WorkerEnded& event) {
  if (!has_round()) return;
  for (Json& worker : round()["workers"]) {
    if (worker["rank"] != event.rank || worker["pid"] != event.pid) continue;
    add_status(worker, event.status);
    worker["ended_ns"] = event.time_ns;
    worker["asked_to_stop"] = event.stop_requested;
  }
}

void ReportDocument::add(const RoundFailed& event) {
  count_failure(name_of(event.first.cause));
  if (!has_round()) return;
  close_round();
  Json& failed = round();
  failed["ended_ns"] = event.time_ns;
  failed["first_cause"] = failure_json(event.first);
  add_consequences(failed, event.consequences);
  for (const Json& worker : failed["workers"]) {
    // True if the worker exited with code 0 before the failure, although it was not ordered to stop. Such a worker may have
    // caused the failure of the other workers.
    const bool left = worker.value("exit_code", -1) == 0 && !worker.value("asked_to_stop", true) &&
                      worker.value("ended_ns", event.first.time_ns) < event.first.time_ns;
    if (left) failed["left_early"].push_back(worker["rank"]);
  }
  failed["decision"] = name_of(event.decision);
  failed["why"] = event.why;
  needed_ = Write::kDeferred;
}

void ReportDocument::add(const Regrouped& event) {
  if (!has_round()) return;
  round()["regroup"] = Json{{"step", event.step},         {"kept", event.kept},
                            {"replaced", event.replaced}, {"by_standby", event.by_standby},
                            {"seconds", event.seconds},   {"time_ns", event.time_ns}};
  needed_ = Write::kNow;
}

void ReportDocument::add(const RegroupFailed& event) {
  if (!has_round()) return;
  close_round();
  round()["regroup"] = Json{{"failed", event.why}, {"time_ns", event.time_ns}};
  round()["ended_ns"] = event.time_ns;
  round()["decision"] = "restart";
  round()["why"] = "the workers could not regroup: " + event.why;
  needed_ = Write::kNow;
}

// Standbys may fail to start many times. The report contains their number and only the newest reason.
void ReportDocument::add(const StandbyEnded& event) {
  Json& ended = invocation()["standbys_ended"];
  const std::int64_t count = ended.is_object() ? report_integer_at(ended, "count") : 0;
  ended = Json{{"count", count + 1}, {"newest", Json{{"pid", event.pid}, {"time_ns", event.time_ns}}}};
  if (event.status) add_status(ended["newest"], *event.status);
  if (!event.message.empty()) ended["newest"]["message"] = event.message;
  needed_ = Write::kNow;
}

void ReportDocument::add(const StopRequested& event) {
  Json& signals = invocation()["signals"];
  signals.push_back(Json{{"signal", event.signal}, {"signal_name", signal_name(event.signal)}, {"time_ns", event.time_ns}});
}

// The file is written immediately, since the process may be killed before the next event.
void ReportDocument::add(const StopIsSlow& event) {
  set_in_round("stop_is_slow", {{"time_ns", event.time_ns}, {"seconds", event.seconds}, {"message", describe(event)}});
}

void ReportDocument::add(const WorkersLeft& event) {
  set_in_round("workers_left", {{"time_ns", event.time_ns}, {"seconds", event.seconds}, {"message", describe(event)}});
}

void ReportDocument::set_in_round(const char* name, Json value) {
  if (!has_round()) return;
  round()[name] = std::move(value);
  needed_ = Write::kNow;
}

void ReportDocument::add(const LeftoversFound& event) {
  append_in_round("leftovers", {{"processes", event.processes}, {"time_ns", event.time_ns}, {"message", describe(event)}});
}

void ReportDocument::add(const Straggler& event) {
  Json one = straggler_json(event);
  one.erase("event");
  append_in_round("stragglers", std::move(one));
}

// The number of entries has a limit. Otherwise a rank that is slow from time to time, or a script that leaves processes behind,
// could fill the report.
void ReportDocument::append_in_round(const char* name, Json one) {
  constexpr std::size_t kMaxEntries = 100;
  if (!has_round()) return;
  Json& list = round()[name];
  if (list.size() >= kMaxEntries) return;
  list.push_back(std::move(one));
  needed_ = Write::kNow;
}

void ReportDocument::add(const HelperIgnored& event) {
  invocation()["helper_ignored"] = describe(event);
}

void ReportDocument::add(const InputWasRead& event) {
  invocation()["input_was_read"] = event.what;
}

void ReportDocument::add(const RunDirectoryRemoved& event) {
  invocation()["run_directory_removed_ns"] = event.time_ns;
}

bool ReportDocument::succeeded(const RunEnded& event) {
  return event.exit_code == 0 && document_["rounds"].size() == 1 && round()["restart_count"] == 0;
}

void ReportDocument::add(const RunEnded& event) {
  if (has_round() && round()["ended_ns"].is_null()) {
    close_round();
    round()["ended_ns"] = event.time_ns;
    round()["decision"] = "end";
    round()["why"] = event.why;
  }
  const Json exit{{"code", event.exit_code}, {"why", event.why}};
  Json& last = invocation();
  last["ended_ns"] = event.time_ns;
  last["exit"] = exit;
  document_["restarts"]["used"] = restarts_before_ + event.restarts_used;
  document_["exit"] = exit;
  if (facts_.kept == ReportFacts::Kept::kUnlessSuccessful && succeeded(event)) return;
  needed_ = Write::kLast;
}

}  // namespace ddprun
