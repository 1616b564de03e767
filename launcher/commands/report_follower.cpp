#include "launcher/commands/report_follower.hpp"

#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <csignal>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/shared_folder/others_link.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/print.hpp"
#include "common/system/realtime.hpp"
#include "launcher/commands/chosen_job.hpp"
#include "launcher/output/log_files.hpp"
#include "launcher/query/local/control_socket.hpp"
#include "launcher/query/local/gpus_of_job.hpp"
#include "launcher/query/local/job_nodes.hpp"
#include "launcher/report_page/page.hpp"
#include "launcher/report_page/report_search.hpp"
#include "launcher/report_page/rewrite_pace.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kFinalReportWait{10};
constexpr milliseconds kUnwatchedPoll{500};  // polling interval for the last report if inotify does not work

std::optional<std::string> text_of_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool is_same_file(const fs::path& one, const fs::path& other) {
  std::error_code error;
  return one == other || (fs::equivalent(one, other, error) && !error);
}

// Returns the path of the report of a running job. Several agents of a job share a run directory, but only one of them writes
// its report.json.
fs::path report_of_job(const RunningJob& job) {
  const fs::path run_dir = job.status.value("run_dir", "");
  std::error_code error;
  if (!run_dir.empty() && fs::exists(RunLayout{run_dir}.report(), error)) return RunLayout{run_dir}.report();
  return job.status.value("report", "");
}

std::optional<RunningJob> job_of_report(const fs::path& report) {
  std::optional<RunningJob> found;
  for (RunningJob& job : running_jobs()) {
    if (!job.status.is_object()) continue;
    if (is_same_file(job.status.value("report", ""), report)) return std::move(job);
    if (is_same_file(report_of_job(job), report)) found = std::move(job);
  }
  return found;
}

bool has_exit(const std::string& report) {
  const ReportJson document = ReportJson::parse(report, nullptr, false);
  return report_value(document, "exit").is_object();
}

// Returns, by rank, the folder with the newest log files of each worker on this node. The path is relative if the folder is in
// the run directory.
std::map<int, std::string> logs_of_workers(const json& status) {
  std::map<int, std::string> logs;
  const std::string root = status.value("logs", ""), run_dir = status.value("run_dir", "");
  if (root.empty()) return logs;
  for (const auto& [rank, folder] : newest_folders(root, first_rank_here(status))) {
    std::error_code error;
    if (!fs::exists(folder / log_name(Stream::kStdout), error) && !fs::exists(folder / log_name(Stream::kStderr), error))
      continue;
    const fs::path relative = run_dir.empty() ? fs::path() : folder.lexically_relative(run_dir);
    logs[rank] = relative.empty() || relative.native().starts_with("..") ? folder.string() : relative.string();
  }
  return logs;
}

// Blocks the signals that stop a program and delivers them to a descriptor. The destructor unblocks them again.
class StopSignals {
 public:
  StopSignals() {
    ::sigemptyset(&blocked_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&blocked_, signal);
    ::sigprocmask(SIG_BLOCK, &blocked_, &before_);
    fd_ = Descriptor(::signalfd(-1, &blocked_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~StopSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  int fd() const { return fd_.get(); }
  // Reads the signal that has arrived, and returns its number.
  int take() const {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : SIGTERM;
  }

 private:
  sigset_t blocked_{}, before_{};
  Descriptor fd_;
};

// Watches the report and the metrics in a run directory.
class RunFiles {
 public:
  explicit RunFiles(const fs::path& report)
      : names_{report.filename().string(), RunLayout{}.metrics().filename().string()},
        inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    const fs::path folder = report.has_parent_path() ? report.parent_path() : fs::path(".");
    watched_ = inotify_.get() >= 0 &&
               ::inotify_add_watch(inotify_.get(), folder.c_str(), IN_MODIFY | IN_MOVED_TO | IN_CREATE | IN_DELETE) >= 0;
  }
  int fd() const { return inotify_.get(); }
  bool watched() const { return watched_; }
  // Reads all inotify events that have arrived. Returns true if the report or the metrics file has changed. Other files are
  // ignored: the HTML page that this program writes may be in the same folder, and must not cause another update.
  bool take_changes() const {
    alignas(inotify_event) char events[64 * (sizeof(inotify_event) + NAME_MAX + 1)];
    bool changed = false;
    for (ssize_t size = 0; (size = ::read(inotify_.get(), events, sizeof events)) > 0;) {
      for (const char* at = events; at < events + size;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(at);
        const std::string name = event->len > 0 ? event->name : "";
        changed = changed || (event->mask & IN_Q_OVERFLOW) != 0 || name == names_[0] || name == names_[1];
        at += sizeof(inotify_event) + event->len;
      }
    }
    return changed;
  }

 private:
  std::array<std::string, 2> names_;
  Descriptor inotify_;
  bool watched_ = false;
};

class ReportFollower {
 public:
  ReportFollower(FollowedRun run, fs::path page)
      : report_(std::move(run.report)),
        job_(std::move(*run.job)),
        page_(std::move(page)),
        writes_report_(is_same_file(job_.status.value("report", ""), report_)),
        process_(static_cast<int>(::syscall(SYS_pidfd_open, job_.agent, 0))),
        files_(report_),
        curves_(RunLayout{report_.parent_path()}.metrics()) {}

  void write_now() {
    update();
    write(PageKind::kReloads, &live_);
    pace_.written(steady_clock::now());
  }

  int run(const StopSignals& signals) {
    for (;;) {
      const milliseconds rest = pace_.remaining(steady_clock::now());
      if (rest == milliseconds(0)) {
        write_now();
        continue;
      }
      std::array<pollfd, 3> ready{pollfd{process_.get(), POLLIN, 0}, pollfd{signals.fd(), POLLIN, 0},
                                  pollfd{pace_.has_changed() ? -1 : files_.fd(), POLLIN, 0}};
      ::poll(ready.data(), ready.size(), static_cast<int>(rest.count()));
      if (process_.get() < 0 || ready[0].revents != 0) return end();
      if (ready[1].revents != 0) return stop(signals.take());
      if (ready[2].revents != 0 && files_.take_changes()) pace_.changed();
    }
  }

 private:
  // Updates text_. Reads the newest report from the agent that writes it. If that fails, reads the report file. If both fail,
  // text_ does not change.
  void update_report() {
    std::optional<std::string> text = writes_report_ ? query_job(job_.socket, kReportRequest) : std::nullopt;
    // An agent of an earlier version does not know this request, so its answer is not a report.
    if (text && !report_value(ReportJson::parse(*text, nullptr, false), "rounds").is_array()) text.reset();
    if (!text) text = text_of_file(report_);
    if (text) text_ = std::move(*text);
  }

  // Queries the status of all nodes. Returns a message about nodes that do not answer.
  std::string query_status(std::vector<json>& nodes) {
    const std::optional<std::string> answer = query_job(job_.socket, kStatusRequest);
    json status = answer ? json::parse(*answer, nullptr, false) : json();
    if (!status.is_object())
      return "process " + std::to_string(job_.agent) + " does not answer: it may be suspended (Ctrl-Z) or ending";
    job_.status = with_known_types(std::move(status));
    if (!job_.status.value("several_nodes", false)) {
      query_gpus(job_);
      nodes = {job_.status};
      return {};
    }
    try {
      ClusterAnswers answers = query_nodes(job_, {{"ask", "status"}});
      query_gpus(job_, answers);
      nodes = answers.answers.empty() ? std::vector<json>{job_.status} : std::move(answers.answers);
      return missing_nodes_message(answers);
    } catch (const UsageError& error) {  // the agent has refused the query, because it has too many others
      nodes = {job_.status};
      return error.what();
    }
  }

  void update() {
    update_report();
    std::vector<json> nodes;
    const std::string note = query_status(nodes);
    if (!nodes.empty()) live_ = live_job_of(nodes, logs_of_workers(job_.status), 0);
    live_.now_ns = realtime_ns();
    live_.note = note;
  }

  void write(PageKind kind, const LiveJob* live) {
    if (text_.empty())
      throw UsageError("cannot read " + report_.string() +
                       ", the report of the job: try again in a few seconds, when the job has started");
    replace_file_unsynced(
        page_, report_page({.report = text_, .curves = curves_.read(), .name = report_.string(), .live = live, .kind = kind}));
  }

  int stop(int signal) {
    update();
    live_.note += std::string(live_.note.empty() ? "" : "; ") + "ddprun report has ended, so this page is no longer updated";
    write(PageKind::kLast, &live_);
    return 128 + signal;
  }

  int end() {
    wait_for_exit();
    write(PageKind::kLast, nullptr);
    print("the job has ended: " + exit_text(report_value(ReportJson::parse(text_, nullptr, false), "exit")) + "\n");
    return 0;
  }

  // Reads reports into text_ until one contains the exit code, for at most kFinalReportWait. If the report has disappeared,
  // the job has succeeded: ddprun then removes a report in the folder for temporary files.
  void wait_for_exit() {
    const auto until = steady_clock::now() + kFinalReportWait;
    for (;;) {
      std::optional<std::string> text = text_of_file(report_);
      if (!text) return set_success();
      text_ = std::move(*text);
      const auto rest = std::chrono::ceil<milliseconds>(until - steady_clock::now());
      if (has_exit(text_) || rest <= milliseconds(0)) return;
      pollfd changed{files_.fd(), POLLIN, 0};
      ::poll(&changed, 1, static_cast<int>((files_.watched() ? rest : std::min(rest, kUnwatchedPoll)).count()));
      files_.take_changes();
    }
  }

  void set_success() {
    ReportJson report = ReportJson::parse(text_, nullptr, false);
    if (!report.is_object()) return;
    if (report_value(report, "rounds").is_array() && !report["rounds"].empty() && report["rounds"].back().is_object())
      report["rounds"].back()["ended_ns"] = realtime_ns();
    report["exit"] = {{"code", 0}, {"why", "done; the temporary report was removed"}};
    text_ = report.dump(-1, ' ', false, ReportJson::error_handler_t::replace);
  }

  fs::path report_;
  RunningJob job_;
  fs::path page_;
  bool writes_report_;  // the agent that is queried writes this report
  Descriptor process_;
  RunFiles files_;
  CurveReader curves_;
  RewritePace pace_;
  std::string text_;  // text of the newest report
  LiveJob live_;
};

}  // namespace

FollowedRun find_followed_run(const std::string& word) {
  std::error_code error;
  if (!word.empty() && fs::exists(word, error)) {
    const fs::path report = fs::is_directory(word) ? report_in(word) : fs::path(word);
    return {report, job_of_report(report)};
  }
  if (word.empty() && running_jobs().empty()) return {report_of_newest_run(), std::nullopt};
  RunningJob job = chosen_job(word, Agents::kAnyOfTheJob);
  fs::path report = report_of_job(job);
  if (report.empty())
    throw UsageError("the job of process " + std::to_string(job.agent) +
                     " writes no report, because --log-dir is /dev/null: start it with --run-dir or another --log-dir");
  return {std::move(report), std::move(job)};
}

fs::path replaceable_page(const fs::path& named) {
  std::error_code error;
  const fs::file_status there = fs::symlink_status(named, error);
  if (!fs::exists(there) || fs::is_regular_file(there) || is_others_link(named)) return named;
  const fs::path target = fs::is_symlink(there) ? fs::weakly_canonical(named, error) : named;
  if (!error && target != named && (!fs::exists(target, error) || fs::is_regular_file(target, error))) return target;
  throw UsageError(named.string() +
                   " is not a regular file: --follow replaces its page every few seconds; choose another "
                   "file with --html FILE");
}

int follow_report(FollowedRun run, const fs::path& page, const std::function<void()>& first_written) {
  const StopSignals signals;  // created before the first page, so that the last page after a Ctrl-C does not reload itself
  ReportFollower follower(std::move(run), page);
  follower.write_now();
  first_written();
  return follower.run(signals);
}

}  // namespace ddprun
