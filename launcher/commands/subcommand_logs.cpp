// `ddprun logs`: prints the log files of a job's workers, each line with its rank; with -f also lines written later. This file
// handles log files on this machine, including those of a job that has ended and of all nodes in a shared run directory. Log
// files on other nodes are requested from their agents (logs_of_nodes.hpp). run_subcommand() calls it.
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/system/print.hpp"
#include "common/system/write_all.hpp"
#include "launcher/commands/chosen_job.hpp"
#include "launcher/commands/job_nodes.hpp"
#include "launcher/commands/logs_of_nodes.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/events/stream.hpp"
#include "launcher/output/line_splitter.hpp"
#include "launcher/output/log_files.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// Polling interval if folders cannot be watched: a user may have used up all inotify instances or watches.
constexpr int kLookAgainMs = 500;

// One log file that is being shown.
struct Shown {
  int fd = -1;
  int rank = 0;
  LineSplitter lines;
};

class Logs {
 public:
  // `first_rank`: rank of the first worker if the folders are named by local ranks.
  Logs(fs::path logs, std::optional<int> rank, bool only_errors, int first_rank)
      : logs_(std::move(logs)), rank_(rank), only_errors_(only_errors), first_rank_(first_rank) {}
  ~Logs() {
    for (const auto& [name, shown] : files_) ::close(shown.fd);
  }
  Logs(const Logs&) = delete;
  Logs& operator=(const Logs&) = delete;

  // Opens the newest files of each rank. After a live recovery the survivors still write to those of an earlier round.
  void open_newest(std::optional<int> tail) {
    std::map<int, fs::path> newest;
    for (const RoundFolder& round : rounds_in(logs_)) {
      for (const auto& [rank, folder] : workers_of(round)) newest[rank] = folder;
    }
    several_ = newest.size() > 1;
    for (const auto& [rank, folder] : newest) {
      std::error_code error;
      const auto is_there = [&, &folder = folder](Stream one) { return fs::exists(folder / log_name(one), error); };
      if (std::ranges::any_of(streams(), is_there)) ranks_.push_back(rank);
    }
    for (const RoundFolder& round : rounds_in(logs_)) {
      for (const auto& [rank, folder] : workers_of(round)) {
        if (folder != newest[rank]) earlier_.insert(folder);
      }
    }
    for (const auto& [rank, folder] : newest) open(rank, folder, tail);
  }
  // Opens files that were created since.
  void open_new() {
    for (const RoundFolder& round : rounds_in(logs_)) {
      for (const auto& [rank, folder] : workers_of(round)) {
        several_ = several_ || rank > 0;
        open(rank, folder, std::nullopt);
      }
    }
  }
  bool any() const { return !files_.empty(); }
  const std::vector<int>& ranks() const { return ranks_; }  // ranks that had such files when open_newest() ran

  // `ends`: no more data will arrive, so unfinished lines are shown as well.
  void show_new(bool ends) {
    for (auto& [name, shown] : files_) {
      char piece[65536];
      for (ssize_t count = 0; (count = ::read(shown.fd, piece, sizeof piece)) > 0;) {
        shown.lines.feed({piece, static_cast<std::size_t>(count)},
                         [&, &one = shown](std::string_view lines) { show(one, lines); });
        if (shown.lines.too_long()) show(shown, shown.lines.take_rest() + "\n");
      }
      if (ends && !shown.lines.rest().empty()) show(shown, shown.lines.take_rest() + "\n");
    }
  }

  // Makes `inotify` readable when anything below the folder changes. Returns false if some folder cannot be watched.
  bool watch(int inotify) const {
    bool all = watch_folder(inotify, logs_, false);
    for (const RoundFolder& round : rounds_in(logs_)) {
      all = watch_folder(inotify, round.path, false) && all;
      for (const auto& [rank, folder] : workers_in(round.path)) all = watch_folder(inotify, folder, true) && all;
    }
    return all;
  }

 private:
  std::vector<Stream> streams() const {
    return only_errors_ ? std::vector{Stream::kStderr} : std::vector{Stream::kStdout, Stream::kStderr};
  }

  std::map<int, fs::path> workers_of(const RoundFolder& round) const {
    std::map<int, fs::path> workers;
    for (auto& [number, folder] : workers_in(round.path)) {
      workers[number + (round.layout == LogLayout::kAttempts ? first_rank_ : 0)] = std::move(folder);
    }
    return workers;
  }

  void open(int rank, const fs::path& folder, std::optional<int> tail) {
    if (rank_ && rank != *rank_) return;
    for (const Stream stream : streams()) {
      const FileName name{folder, stream == Stream::kStderr};
      const fs::path file = folder / log_name(stream);
      if (files_.contains(name) || earlier_.contains(folder)) continue;
      std::error_code error;
      if (!fs::is_regular_file(file, error)) continue;  // opening a pipe would block
      const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
      if (fd < 0) continue;
      Shown& shown = files_[name];
      shown.fd = fd;
      shown.rank = rank;
      if (tail) ::lseek(fd, begin_of_tail(fd, *tail), SEEK_SET);
    }
  }

  void show(const Shown& shown, std::string_view lines) const {
    print_while_read(prefixed(lines, several_ && !rank_ ? "[rank " + std::to_string(shown.rank) + "] " : ""));
  }

  fs::path logs_;
  std::optional<int> rank_;
  bool only_errors_;
  int first_rank_;
  bool several_ = false;
  std::vector<int> ranks_;
  using FileName = std::pair<fs::path, bool>;  // the worker's folder, and whether it is stderr; stderr is sorted after stdout
  std::map<FileName, Shown> files_;
  std::set<fs::path> earlier_;  // folders of a rank's rounds before its newest one; not shown
};

// The folder given by --log-dir has a folder for each run. Empty if there is none.
fs::path newest_run_in(const fs::path& log_dir) {
  fs::path newest;
  fs::file_time_type written = fs::file_time_type::min();
  std::error_code error;
  for (fs::directory_iterator entry(log_dir, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const fs::file_time_type time = fs::last_write_time(entry->path(), unknown);
    if (unknown || time <= written || rounds_in(entry->path()).empty()) continue;
    newest = entry->path();
    written = time;
  }
  return newest;
}

// The folder that contains the rounds. For a running job it comes from the status, otherwise from the run directory or log
// folder that `word` names.
struct Found {
  fs::path logs;
  std::optional<RunningJob> job;  // nullopt: the job is not running
};
Found find_logs(const std::string& word) {
  for (const fs::path& folder : {fs::path(word) / "logs", fs::path(word), newest_run_in(word)}) {
    if (word.empty() || rounds_in(folder).empty()) continue;
    for (const RunningJob& job : running_jobs()) {
      std::error_code error;
      if (job.status.is_object() && fs::equivalent(job.status.value("logs", ""), folder, error)) return {folder, job};
    }
    return {folder, std::nullopt};
  }
  const RunningJob job = chosen_job(word, Agents::kAnyOfTheJob);
  return {job.status.value("logs", ""), job};
}

// The first rank of this node; 0 if unknown.
int first_rank_here(const Found& found) {
  if (!found.job) return 0;
  for (const nlohmann::json& worker : found.job->status.value("workers", nlohmann::json::array())) {
    return static_cast<int>(number_of(worker, "rank") - number_of(worker, "local_rank"));
  }
  return 0;
}

std::string why_there_are_none(const Logs& logs, const JobRequest& request) {
  if (request.rank && !logs.ranks().empty())
    return "no log files of rank " + std::to_string(*request.rank) + " are here, only of " + ranks_text(logs.ranks());
  return "that job writes no log files" + std::string(request.has("--stderr") ? " of standard error" : "") +
         ": a script does with --tee 3, --redirects 3 or --run-dir";
}

void print_logs_of_this_machine(const Found& found, const JobRequest& request) {
  const bool follow = request.has("-f") && found.job;
  const bool starts = found.job && found.job->status.value("state", "") == "starting";  // its files may not exist yet
  Logs logs(found.logs, request.rank, request.has("--stderr"), first_rank_here(found));
  const int inotify = follow ? ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;
  bool watched = follow && logs.watch(inotify);
  const bool cut = request.tail.has_value() || request.has("-f");
  logs.open_newest(cut ? std::optional(request.tail.value_or(kTailWhenFollowed)) : std::nullopt);
  if (!logs.any() && !(follow && starts)) throw UsageError(why_there_are_none(logs, request));
  logs.show_new(!follow);
  if (request.has("-f") && !follow)
    write_all(STDERR_FILENO, "ddprun logs: no running job of yours on this machine has this folder, so nothing more comes\n");
  const int process = follow ? static_cast<int>(::syscall(SYS_pidfd_open, found.job->agent, 0)) : -1;
  bool runs = follow && process >= 0;
  while (runs) {
    std::array<pollfd, 3> ready{pollfd{inotify, POLLIN, 0}, pollfd{process, POLLIN, 0}, pollfd{STDOUT_FILENO, 0, 0}};
    ::poll(ready.data(), ready.size(), watched ? -1 : kLookAgainMs);
    if (ready[2].revents != 0) return;  // stdout is closed
    runs = ready[1].revents == 0;
    char events[4096];
    while (::read(inotify, events, sizeof events) > 0) {
    }
    watched = logs.watch(inotify);  // new folders may have been created
    logs.open_new();
    logs.show_new(!runs);
  }
}

}  // namespace

int show_logs(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun logs [JOB] [-f] [--rank N] [--tail N] [--stderr] [--here]";
  constexpr std::array<std::string_view, 6> kAllowed{"JOB", "-f", "--rank", "--tail", "--stderr", "--here"};
  const JobRequest request = parse_job_request(args, kAllowed, kUsage);
  if (request.help) {
    print(std::string(kUsage) +
          "\nPrints what the workers wrote to log files, newest round: all of it, or the last N lines of each file."
          "\n  -f        go on with what comes, until the job ends; begins with the last 10 lines"
          "\n  --rank N  of that worker only"
          "\n  --stderr  standard error only"
          "\n  --here    of a job on several machines, what is on this one only"
          "\nExit code 1: a node could not show its part, and a line says which."
          "\nJOB as for `ddprun status`, or the run directory or log folder of one that has ended; of what --log-dir named it "
          "is the newest run.\n");
    return 0;
  }
  const Found found = find_logs(request.job);
  if (found.job && asks_all_nodes(*found.job, request)) {
    if (const LogsShown shown = show_logs_of_nodes(*found.job, request); shown != LogsShown::kNone)
      return shown == LogsShown::kAll ? 0 : 1;
    write_all(STDERR_FILENO, about_silence({}));
  }
  print_logs_of_this_machine(found, request);
  return 0;
}

}  // namespace ddprun
