// See report.hpp. The document is kept as JSON all the time, so that what earlier invocations wrote is carried on as it is.
#include "launcher/report.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/atomic_file.hpp"
#include "common/host_name.hpp"
#include "common/signal_name.hpp"
#include "common/version.hpp"
#include "launcher/console_nodes.hpp"
#include "launcher/report_event.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kUnfinished = "the agent ended without a word: killed, out of memory, or the machine went down";

std::string dumped(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Whole or not at all for every death of this process; not synced (see the Note).
bool replace_file(const fs::path& file, std::string_view text) noexcept {
  try {
    const std::string temporary = file.string() + ".new";
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return false;
    bool written = true;
    while (written && !text.empty()) {
      const ssize_t count = ::write(fd, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      written = count > 0;
      if (written) text.remove_prefix(static_cast<std::size_t>(count));
    }
    written = ::close(fd) == 0 && written;
    if (written && ::rename(temporary.c_str(), file.c_str()) == 0) return true;
    ::unlink(temporary.c_str());
    return false;
  } catch (...) {
    return false;
  }
}

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

double seconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e9;
}

}  // namespace

struct Report::Impl {
  fs::path file;
  ReportFacts facts;
  std::string warning;
  Json document;
  std::int64_t restarts_before = 0;
  std::size_t workers_here = 0;

  // Where the time goes: "start" until the first round runs, "training" while it runs, "restart" from a failure until it runs
  // again.
  enum class Clock { kStart, kTraining, kRestart } clock = Clock::kStart;
  std::int64_t clock_since = 0;
  bool speaks = false;  // some worker uses the channel, so its phases tell when it runs

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
    if (!document.contains("time")) document["time"] = Json{{"start_s", 0.0}, {"training_s", 0.0}, {"restart_s", 0.0}};
    restarts_before = document.contains("restarts") ? document["restarts"].value("used", std::int64_t{0}) : 0;
    document["restarts"] =
        Json{{"used", restarts_before}, {"budget", facts.restart_budget}, {"refilled_by_progress", facts.refilled_by_progress}};
    document["exit"] = nullptr;
  }

  // The invocation before this one may have been killed; the guardian fills in "exit" then, unless it was killed as well.
  void finish_earlier() {
    const bool completed = document.contains("exit") && !document["exit"].is_null();
    if (!completed) warning = "the run before this one left an unfinished report: " + std::string(kUnfinished);
    const Json exit = completed ? document["exit"] : Json{{"code", nullptr}, {"why", kUnfinished}};
    if (document["invocations"].empty() || !document["invocations"].back().is_object()) return;
    Json& last = document["invocations"].back();
    if (!last.contains("exit") || last["exit"].is_null()) last["exit"] = exit;
  }

  Json& round() { return document["rounds"].back(); }
  bool has_round() { return !document["rounds"].empty() && round().value("invocation", -1) == invocation_number(); }
  int invocation_number() const { return static_cast<int>(document["invocations"].size()) - 1; }

  void write() const { replace_file(file, dumped(document)); }

  void count_time(Clock next, std::int64_t now_ns) {
    static constexpr const char* kNames[] = {"start_s", "training_s", "restart_s"};
    if (clock_since != 0 && now_ns > clock_since) {
      Json& sum = document["time"][kNames[static_cast<int>(clock)]];
      sum = (sum.is_number() ? sum.get<double>() : 0.0) + seconds(now_ns - clock_since);
    }
    clock = next;
    clock_since = now_ns;
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
    clock_since = event.time_ns;
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
    workers_here = static_cast<std::size_t>(event.workers_here > 0 ? event.workers_here : event.world_size);
    document["restarts"]["used"] = restarts_before + event.restart_count;
    write();
  }

  // At most this many are kept: a node may come and go for days.
  static constexpr std::size_t kMostNodeEvents = 1000;
  void add(const NodesChanged& event) {
    if (event.notice.kind == rendezvous::Notice::Kind::kWaiting) return;
    Json& nodes = document["invocations"].back()["nodes"];
    if (nodes.size() >= kMostNodeEvents) return;
    nodes.push_back(Json{{"event", notice_word(event.notice.kind)}, {"text", event.notice.text}, {"time_ns", event.time_ns}});
  }

  void add(const WorkerStarted& event) {
    if (!has_round()) return;
    round()["workers"].push_back(Json{{"rank", event.rank}, {"pid", event.pid}, {"started_ns", event.time_ns}});
    // A worker that never speaks runs from its start.
    if (!speaks && round()["workers"].size() == workers_here) count_time(Clock::kTraining, event.time_ns);
  }

  void add(const WorkerSpoke& event) {
    if (!speaks) {
      speaks = true;
      if (clock == Clock::kTraining && has_round()) restore_start_clock();
    }
    if (const auto* phase = std::get_if<channel::PhaseChange>(&event.message)) {
      if (phase->phase == channel::Phase::kRunning && clock != Clock::kTraining) count_time(Clock::kTraining, event.time_ns);
    } else if (const auto* progress = std::get_if<channel::Progress>(&event.message)) {
      if (clock != Clock::kTraining) count_time(Clock::kTraining, event.time_ns);
      if (event.rank == 0) document["last_step"] = progress->step;
    } else if (const auto* evaluation = std::get_if<channel::EvalResult>(&event.message)) {
      document["evaluation"] = Json{{"step", evaluation->step},
                                    {"epoch", evaluation->epoch},
                                    {"loss", evaluation->loss},
                                    {"accuracy", evaluation->accuracy},
                                    {"samples", evaluation->samples}};
    } else if (const auto* published = std::get_if<channel::CheckpointPublished>(&event.message)) {
      Json& checkpoints = document["checkpoints"];
      checkpoints["published"] = checkpoints.value("published", std::int64_t{0}) + 1;
      checkpoints["pause_s"] = checkpoints.value("pause_s", 0.0) + published->pause_s;
      checkpoints["latest"] = Json{
          {"step", published->step}, {"path", published->path}, {"bytes", published->bytes}, {"save_s", published->save_s}};
    }
  }

  // The first word over the channel shows that the workers had only been started, not running, when their processes were there.
  void restore_start_clock() {
    clock = document["rounds"].size() > 0 && round()["restart_count"] != 0 ? Clock::kRestart : Clock::kStart;
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
    count_time(Clock::kRestart, event.first.time_ns > clock_since ? event.first.time_ns : event.time_ns);
    if (!has_round()) return;
    Json& failed = round();
    failed["ended_ns"] = event.time_ns;
    failed["first_cause"] = failure_json(event.first);
    for (const Failure& failure : event.consequences) failed["consequences"].push_back(failure_json(failure));
    for (const Json& worker : failed["workers"]) {
      // Of its own accord and with exit code 0, while the others went on.
      const bool left = worker.value("exit_code", -1) == 0 && !worker.value("asked_to_stop", true) &&
                        worker.value("ended_ns", event.first.time_ns) < event.first.time_ns;
      if (left) failed["left_early"].push_back(worker["rank"]);
    }
    failed["decision"] = name_of(event.decision);
    failed["why"] = event.why;
    write();
  }

  void add(const Regrouped& event) {
    if (!has_round()) return;
    round()["regroup"] = Json{{"step", event.step},
                              {"kept", event.kept},
                              {"replaced", event.replaced},
                              {"seconds", event.seconds},
                              {"time_ns", event.time_ns}};
    write();
  }

  void add(const RegroupFailed& event) {
    if (!has_round()) return;
    round()["regroup"] = Json{{"failed", event.why}, {"time_ns", event.time_ns}};
    round()["ended_ns"] = event.time_ns;
    round()["decision"] = "restart";
    round()["why"] = "the workers could not regroup: " + event.why;
    write();
  }

  void add(const StopRequested& event) {
    Json& signals = document["invocations"].back()["signals"];
    signals.push_back(Json{{"signal", event.signal}, {"signal_name", signal_name(event.signal)}, {"time_ns", event.time_ns}});
  }

  void add(const RunEnded& event) {
    count_time(clock, event.time_ns);
    if (has_round() && round()["ended_ns"].is_null()) {
      round()["ended_ns"] = event.time_ns;
      round()["decision"] = "end";
      round()["why"] = event.why;
    }
    const Json exit{{"code", event.exit_code}, {"why", event.why}};
    Json& last = document["invocations"].back();
    last["ended_ns"] = event.time_ns;
    last["exit"] = exit;
    document["restarts"]["used"] = restarts_before + event.restarts_used;
    document["exit"] = exit;
    if (!facts.synced) return write();
    try {
      write_file_atomically(file, dumped(document));
    } catch (const std::exception&) {
      write();  // a full disk must not change how the job ends
    }
  }
};

Report::Report(fs::path file, ReportFacts facts) : impl_(std::make_unique<Impl>()) {
  impl_->file = std::move(file);
  impl_->facts = std::move(facts);
  impl_->open();
}

Report::~Report() = default;

void Report::on(const RunEvent& event) {
  if (!std::holds_alternative<RunStarted>(event) && impl_->document["invocations"].empty()) return;
  std::visit([this](const auto& e) { impl_->add(e); }, event);
}

const std::string& Report::warning() const {
  return impl_->warning;
}

std::string Report::text() const {
  return dumped(impl_->document);
}

}  // namespace ddprun
