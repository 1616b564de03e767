// Implementation of report.hpp. The document is kept as JSON, so that the text of earlier invocations is preserved unchanged.
#include "launcher/report/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/overloaded.hpp"
#include "common/base/signal_name.hpp"
#include "common/base/version.hpp"
#include "common/system/host_name.hpp"
#include "common/system/realtime.hpp"
#include "launcher/events/event_json.hpp"
#include "launcher/events/node_notice.hpp"
#include "launcher/report/report_figures.hpp"
#include "launcher/report/report_file.hpp"
#include "launcher/report/report_rounds.hpp"
#include "launcher/report/time_account.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Json = ReportJson;

// A smaller difference may come from reading two clocks one after the other.
constexpr std::int64_t kClockIsSetFrom = 100'000'000;

constexpr const char* kUnfinished =
    "its end is not in it: the agent was killed, the machine went down, or the report could not be written (a full disk)";

std::optional<std::string> read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool is_report(const Json& document) {
  return document.is_object() && document.contains("version") && document["version"] == kReportVersion &&
         document.contains("rounds") && document["rounds"].is_array() && document.contains("invocations") &&
         document["invocations"].is_array() && document.contains("time") && document["time"].is_object();
}

fs::path free_name(const fs::path& file) {
  for (int number = 1;; ++number) {
    fs::path name = file.string() + ".bad-" + std::to_string(number);
    if (!fs::exists(name)) return name;
  }
}

}  // namespace

struct Report::Impl {
  fs::path file;
  std::optional<ReportFile> out;
  ReportFacts facts;
  std::string warning;
  Json document;
  std::int64_t restarts_before = 0;
  TimeAccount account;
  ReportRounds rounds_text;
  std::chrono::steady_clock::time_point opened = std::chrono::steady_clock::now();
  std::int64_t opened_ns = realtime_ns();

  std::int64_t clock_was_set_ns() const {
    const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - opened;
    const std::int64_t moved = realtime_ns() - opened_ns - passed.count();
    return std::abs(moved) < kClockIsSetFrom ? 0 : moved;
  }

  void open() {
    document = Json{{"version", kReportVersion}, {"ddprun", kVersion}, {"title", facts.title}};
    if (const auto text = read_file(file)) {
      Json earlier = Json::parse(*text, nullptr, false);
      if (is_report(earlier)) {
        document = std::move(earlier);
        document["ddprun"] = kVersion;
        document["title"] = facts.title;
        finish_earlier();
      } else {
        const fs::path aside = free_name(file);
        std::error_code ignored;
        fs::rename(file, aside, ignored);
        warning = "report.json was damaged; it is kept as " + aside.filename().string();
      }
    }
    if (!facts.run_dir.empty()) document["run_dir"] = facts.run_dir;
    if (!document.contains("invocations")) document["invocations"] = Json::array();
    if (!document.contains("rounds")) document["rounds"] = Json::array();
    if (!document.contains("checkpoints"))
      document["checkpoints"] = Json{{"published", 0}, {"pause_s", 0.0}, {"latest", nullptr}};
    if (!document.contains("last_step")) document["last_step"] = nullptr;
    if (!document.contains("evaluation")) document["evaluation"] = nullptr;
    if (!document.contains("time")) document["time"] = Json::object();
    account = TimeAccount(earlier_seconds());
    if (!document["time"].contains("lost_s")) document["time"]["lost_s"] = 0.0;
    if (!document.contains("failures") || !document["failures"].is_object()) document["failures"] = Json::object();
    if (!document.contains("steps_lost")) document["steps_lost"] = 0;
    restarts_before = document.contains("restarts") ? document["restarts"].value("used", std::int64_t{0}) : 0;
    document["restarts"] =
        Json{{"used", restarts_before}, {"budget", facts.restart_budget}, {"refilled_by_progress", facts.refilled_by_progress}};
    document["exit"] = nullptr;
  }

  // The previous invocation may have been killed. Its guardian then fills in "exit", unless the guardian was killed as well.
  void finish_earlier() {
    const bool completed = document.contains("exit") && !document["exit"].is_null();
    if (!completed) warning = "the run before this one left an unfinished report: " + std::string(kUnfinished);
    const Json exit = completed ? document["exit"] : Json{{"code", nullptr}, {"why", kUnfinished}};
    if (document["invocations"].empty() || !document["invocations"].back().is_object()) return;
    Json& last = document["invocations"].back();
    if (!last.contains("exit") || last["exit"].is_null()) last["exit"] = exit;
  }

  Json& round() {
    check(!document["rounds"].empty(), "the report has no round");
    return document["rounds"].back();
  }
  Json& invocation() {
    check(!document["invocations"].empty(), "the report has no invocation");
    return document["invocations"].back();
  }
  bool has_round() { return !document["rounds"].empty() && round().value("invocation", -1) == invocation_number(); }
  int invocation_number() const { return static_cast<int>(document["invocations"].size()) - 1; }

  TimeAccount::Seconds earlier_seconds() const {
    TimeAccount::Seconds seconds{};
    for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] = report_number_at(document["time"], TimeAccount::kNames[i]);
    return seconds;
  }

  std::string whole() {
    for (std::size_t i = 0; i < account.seconds().size(); ++i) document["time"][TimeAccount::kNames[i]] = account.seconds()[i];
    return rounds_text.text_of(document);
  }

  bool is_over = false;  // the run has ended; the file must contain its end
  using Sync = ReportFile::Sync;
  void write(Sync sync = Sync::kNo) { out->write(whole(), sync); }
  void write_soon() { out->write_soon(whole()); }

  Later later;
  std::shared_ptr<int> alive = std::make_shared<int>(0);
  void write_start() {
    if (!later || facts.kept == ReportFacts::Kept::kAlways || document["rounds"].size() > 1) return write_soon();
    later([this, token = std::weak_ptr<int>(alive)] {
      if (!token.expired()) write();
    });
  }

  void add(const RunStarted& event) {
    document["invocations"].push_back(Json{{"number", invocation_number() + 1},
                                           {"started_ns", event.time_ns},
                                           {"ended_ns", nullptr},
                                           {"host", host_name()},
                                           {"pid", ::getpid()},
                                           {"world_size", event.world_size},
                                           {"command", facts.command},
                                           {"exit", nullptr}});
  }

  void add(const RoundStarted& event) {
    document["rounds"].push_back(Json{{"round", event.round},
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
    if (rounds_text.appended(document["rounds"])) {
      document["rounds_left_out"] = report_integer_at(document, "rounds_left_out") + 1;
    }
    document["restarts"]["used"] = restarts_before + event.restart_count;
    write_start();
  }

  void count_failure(const Failure& first) {
    Json& failures = document["failures"];
    failures[name_of(first.cause)] = report_integer_at(failures, name_of(first.cause)) + 1;
  }

  // Limit on node events: a node may join and leave repeatedly for days.
  static constexpr std::size_t kMostNodeEvents = 1000;
  void add(const NodesChanged& event) {
    if (event.notice.kind == rendezvous::NodeNotice::Kind::kWaiting) return;
    Json& nodes = invocation()["nodes"];
    if (nodes.size() >= kMostNodeEvents) return;
    nodes.push_back(Json{{"event", notice_word(event.notice.kind)}, {"text", event.notice.text}, {"time_ns", event.time_ns}});
  }

  void add(const CutOff& event) {
    Json& failures = document["failures"];
    failures[kCutOff] = report_integer_at(failures, kCutOff) + 1;
    if (!has_round()) return;
    close_round();
    round()["ended_ns"] = event.time_ns;
    round()["first_cause"] = Json{{"cause", kCutOff},
                                  {"message", describe(event)},
                                  {"seconds", event.seconds},
                                  {"time_ns", event.time_ns},
                                  {"host", host_name()}};
    round()["decision"] = "rejoin";
    round()["why"] = "this node looks for the others";
    write();
  }

  void add(const WorkerStarted& event) {
    if (!has_round()) return;
    Json worker{{"rank", event.rank}, {"pid", event.pid}, {"started_ns", event.time_ns}};
    if (event.standby) worker["standby"] = true;
    round()["workers"].push_back(std::move(worker));
  }

  void add(const WorkerSpoke& event) {
    note_where_it_began();
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

  void note(const channel::Progress& progress) {
    document["last_step"] = progress.step;
    if (!facts.of_script || (!progress.loss && progress.figures.empty())) return;
    Json newest{{"step", progress.figures_step.value_or(progress.step)}};
    for (const Figure& figure : progress.figures) newest[figure.name] = figure.value;
    if (progress.loss) newest["loss"] = *progress.loss;
    document["figures"] = std::move(newest);
  }

  void note(const channel::EvalResult& evaluation) {
    Json found{{"step", evaluation.step}, {"epoch", evaluation.epoch}};
    for (const Figure& figure : evaluation.figures) found[figure.name] = figure.value;
    found["samples"] = evaluation.samples;
    document["evaluation"] = std::move(found);
  }

  void note(const channel::CheckpointPublished& published) {
    Json& checkpoints = document["checkpoints"];
    checkpoints["published"] = checkpoints.value("published", std::int64_t{0}) + 1;
    checkpoints["pause_s"] = checkpoints.value("pause_s", 0.0) + published.pause_s;
    checkpoints["latest"] =
        Json{{"step", published.step}, {"path", published.path}, {"bytes", published.bytes}, {"save_s", published.save_s}};
  }

  void note_where_it_began() {
    const std::int64_t from = account.round().from_step;
    if (from < 0 || !has_round() || round().contains("from_step")) return;
    round()["from_step"] = from;
    count_lost_steps(from);
  }

  // Training resumes at step `goes_on_at`. All later steps of the last round are lost and must be repeated.
  void count_lost_steps(std::int64_t goes_on_at) {
    Json& rounds = document["rounds"];
    const auto ran = std::find_if(rounds.rbegin() + 1, rounds.rend(),
                                  [](const Json& one) { return one.is_object() && one.contains("reached_step"); });
    if (ran == rounds.rend() || ran->contains("steps_lost")) return;
    Json& before = *ran;
    rounds_text.changed(static_cast<std::size_t>(rounds.rend() - ran - 1));
    const std::int64_t reached = report_integer_at(before, "reached_step");
    const std::int64_t lost = std::max<std::int64_t>(0, reached - goes_on_at);
    before["steps_lost"] = lost;
    document["steps_lost"] = report_integer_at(document, "steps_lost") + lost;
    const std::int64_t done = reached - report_integer_at(before, "from_step");
    if (done <= 0) return;
    const double share = std::min(1.0, static_cast<double>(lost) / static_cast<double>(done));
    document["time"]["lost_s"] = report_number_at(document["time"], "lost_s") + report_number_at(before, "trained_s") * share;
  }

  void close_round() {
    if (account.round().from_step < 0) return;
    round()["reached_step"] = account.round().reached_step;
    round()["trained_s"] = account.round().trained_s;
  }

  void add(const WorkerEnded& event) {
    if (!has_round()) return;
    for (Json& worker : round()["workers"]) {
      if (worker["rank"] != event.rank || worker["pid"] != event.pid) continue;
      add_status(worker, event.status);
      worker["ended_ns"] = event.time_ns;
      worker["asked_to_stop"] = event.asked_to_stop;
    }
  }

  void add(const RoundFailed& event) {
    count_failure(event.first);
    if (!has_round()) return;
    close_round();
    Json& failed = round();
    failed["ended_ns"] = event.time_ns;
    failed["first_cause"] = failure_json(event.first);
    add_consequences(failed, event.consequences);
    for (const Json& worker : failed["workers"]) {
      // The worker exited with code 0 without a request, while the others continued.
      const bool left = worker.value("exit_code", -1) == 0 && !worker.value("asked_to_stop", true) &&
                        worker.value("ended_ns", event.first.time_ns) < event.first.time_ns;
      if (left) failed["left_early"].push_back(worker["rank"]);
    }
    failed["decision"] = name_of(event.decision);
    failed["why"] = event.why;
    write_soon();
  }

  void add(const Regrouped& event) {
    if (!has_round()) return;
    round()["regroup"] = Json{{"step", event.step},         {"kept", event.kept},
                              {"replaced", event.replaced}, {"by_standby", event.by_standby},
                              {"seconds", event.seconds},   {"time_ns", event.time_ns}};
    write();
  }

  void add(const RegroupFailed& event) {
    if (!has_round()) return;
    close_round();
    round()["regroup"] = Json{{"failed", event.why}, {"time_ns", event.time_ns}};
    round()["ended_ns"] = event.time_ns;
    round()["decision"] = "restart";
    round()["why"] = "the workers could not regroup: " + event.why;
    write();
  }

  void add(const StandbyWaits&) {}

  // If standbys fail to start again and again, the newest reason is enough.
  void add(const StandbyEnded& event) {
    Json& ended = invocation()["standbys_ended"];
    const std::int64_t count = ended.is_object() ? report_integer_at(ended, "count") : 0;
    ended = Json{{"count", count + 1}, {"newest", Json{{"pid", event.pid}, {"time_ns", event.time_ns}}}};
    if (event.status) add_status(ended["newest"], *event.status);
    if (!event.message.empty()) ended["newest"]["message"] = event.message;
    write();
  }

  void add(const StopRequested& event) {
    Json& signals = invocation()["signals"];
    signals.push_back(Json{{"signal", event.signal}, {"signal_name", signal_name(event.signal)}, {"time_ns", event.time_ns}});
  }

  // Written immediately: the process may be killed before any other event arrives.
  void add(const StopIsSlow& event) {
    if (!has_round()) return;
    round()["stop_is_slow"] = Json{{"time_ns", event.time_ns}, {"seconds", event.seconds}, {"message", describe(event)}};
    write();
  }

  void add(const WorkersLeft& event) {
    if (!has_round()) return;
    round()["workers_left"] = Json{{"time_ns", event.time_ns}, {"seconds", event.seconds}, {"message", describe(event)}};
    write();
  }

  // Limited, since a script that leaves processes behind in each of many rounds would fill the report.
  void add(const LeftoversFound& event) {
    constexpr std::size_t kMost = 100;
    if (!has_round()) return;
    Json& leftovers = round()["leftovers"];
    if (leftovers.size() >= kMost) return;
    leftovers.push_back(Json{{"processes", event.processes}, {"time_ns", event.time_ns}, {"message", describe(event)}});
    write();
  }

  void add(const WorkerContinued&) {}

  // Limited, since a rank that is slow from time to time would fill the report.
  void add(const Straggler& event) {
    constexpr std::size_t kMost = 100;
    if (!has_round()) return;
    Json& stragglers = round()["stragglers"];
    if (stragglers.size() >= kMost) return;
    Json one = straggler_json(event);
    one.erase("event");
    stragglers.push_back(std::move(one));
    write();
  }

  void add(const HelperIgnored& event) { invocation()["helper_ignored"] = describe(event); }

  void add(const FirstOutput&) {}
  void add(const InputWasRead& event) { invocation()["input_was_read"] = event.what; }

  void add(const RunDirectoryRemoved& event) { invocation()["run_directory_removed_ns"] = event.time_ns; }

  // True if the job ended successfully in its first round.
  bool all_went_well(const RunEnded& event) {
    return event.exit_code == 0 && document["rounds"].size() == 1 && round()["restart_count"] == 0;
  }

  void add(const RunEnded& event) {
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
    document["restarts"]["used"] = restarts_before + event.restarts_used;
    document["exit"] = exit;
    if (facts.kept == ReportFacts::Kept::kUnlessAllGoesWell && all_went_well(event)) return;
    is_over = true;
    write(facts.synced ? Sync::kYes : Sync::kNo);
  }
};

Report::Report(fs::path file, ReportFacts facts) : impl_(std::make_unique<Impl>()) {
  impl_->out.emplace(file);
  impl_->file = std::move(file);
  impl_->facts = std::move(facts);
  impl_->open();
}

Report::~Report() {
  const int error = impl_->is_over && impl_->facts.unwritten ? impl_->out->error() : 0;
  if (error != 0) impl_->facts.unwritten(std::strerror(error));
}

void Report::on(const RunEvent& event) {
  if (!std::holds_alternative<RunStarted>(event) && impl_->document["invocations"].empty()) return;
  const std::int64_t was_set = impl_->clock_was_set_ns();
  impl_->account.on(event, was_set, realtime_ns() - was_set);
  std::visit([this](const auto& e) { impl_->add(e); }, event);
}

void Report::write_behind(FileQueue& files, std::function<void(std::string_view text)> keep, Later later) {
  impl_->later = later;
  impl_->out->write_behind(files, std::move(keep), std::move(later));
}

const std::string& Report::warning() const {
  return impl_->warning;
}

std::string Report::text() const {
  return impl_->whole();
}

}  // namespace ddprun
