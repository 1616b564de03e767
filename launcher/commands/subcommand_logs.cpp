// `ddprun logs`: prints the log files of a job's workers, each line with its rank; with -f also lines written later. This file
// handles log files on this machine. These include the files of a job that has ended, and the files of all nodes in a shared
// run directory. Log files on other nodes are requested from their agents (logs_of_nodes.hpp). run_subcommand() calls it.
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
#include "common/system/descriptor.hpp"
#include "common/system/print.hpp"
#include "common/system/write_all.hpp"
#include "launcher/commands/chosen_job.hpp"
#include "launcher/commands/logs_of_nodes.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/events/stream.hpp"
#include "launcher/output/line_splitter.hpp"
#include "launcher/output/log_files.hpp"
#include "launcher/query/local/job_nodes.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// Polling interval if the folders cannot be watched, for example because the user's limit on inotify instances or watches is
// reached.
constexpr int kPollMs = 500;

// One log file that is being shown.
struct Shown {
  Descriptor file{};
  int rank = 0;
  LineSplitter lines{};
};

class Logs {
 public:
  // `first_rank`: global rank of this node's first worker. It is needed if the folders are named by local ranks.
  Logs(fs::path logs, std::optional<int> rank, bool only_errors, int first_rank)
      : logs_(std::move(logs)), rank_(rank), only_errors_(only_errors), first_rank_(first_rank) {}

  // Opens the newest files of each rank.
  void open_newest(std::optional<int> tail) {
    const std::map<int, fs::path> newest = newest_folders(logs_, first_rank_);
    several_ = newest.size() > 1;
    for (const auto& [rank, folder] : newest) {
      std::error_code error;
      const auto is_there = [&, &folder = folder](Stream one) { return fs::exists(folder / log_name(one), error); };
      if (std::ranges::any_of(streams(), is_there)) ranks_.push_back(rank);
    }
    for (const RoundFolder& round : rounds_in(logs_)) {
      for (const auto& [rank, folder] : ranks_in(round, first_rank_)) {
        if (const auto one = newest.find(rank); one != newest.end() && folder != one->second) earlier_.insert(folder);
      }
    }
    for (const auto& [rank, folder] : newest) open(rank, folder, tail);
  }
  // Opens files that were created after the previous call.
  void open_new() {
    for (const RoundFolder& round : rounds_in(logs_)) {
      for (const auto& [rank, folder] : ranks_in(round, first_rank_)) {
        several_ = several_ || rank > 0;
        open(rank, folder, std::nullopt);
      }
    }
  }
  bool any() const { return !files_.empty(); }
  const std::vector<int>& ranks() const { return ranks_; }  // ranks that had log files when open_newest() ran

  // `ends`: no more data will arrive, so unfinished lines are shown as well.
  void show_new(bool ends) {
    for (auto& [name, shown] : files_) {
      char piece[65536];
      for (ssize_t count = 0; (count = ::read(shown.file.get(), piece, sizeof piece)) > 0;) {
        shown.lines.feed({piece, static_cast<std::size_t>(count)},
                         [&, &one = shown](std::string_view lines) { show(one, lines); });
        if (shown.lines.too_long()) show(shown, shown.lines.take_rest() + "\n");
      }
      if (ends && !shown.lines.rest().empty()) show(shown, shown.lines.take_rest() + "\n");
    }
  }

  // Makes `inotify` report changes in the log folder, its round folders and its worker folders. Returns false if some folder
  // cannot be watched.
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

  void open(int rank, const fs::path& folder, std::optional<int> tail) {
    if (rank_ && rank != *rank_) return;
    for (const Stream stream : streams()) {
      const FileName name{folder, stream == Stream::kStderr};
      const fs::path file = folder / log_name(stream);
      if (files_.contains(name) || earlier_.contains(folder)) continue;
      std::error_code error;
      if (!fs::is_regular_file(file, error)) continue;  // a FIFO is not a log file, and opening it could block
      Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
      const int fd = opened.get();
      if (fd < 0) continue;
      if (tail) ::lseek(fd, tail_offset(fd, *tail), SEEK_SET);
      files_[name] = {.file = std::move(opened), .rank = rank};
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
  // folder of the worker, and true if the file contains stderr; stdout sorts first
  using FileName = std::pair<fs::path, bool>;
  std::map<FileName, Shown> files_;
  std::set<fs::path> earlier_;  // worker folders of earlier rounds, whose files are not shown
};

// Returns the folder of the newest run in a --log-dir, which has one folder for each run. The path is empty if there is no
// run.
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

// The log folder, which has one folder for each round. If the user's argument is not a run directory or log folder, the path
// comes from the status of the running job.
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

std::string no_logs_reason(const Logs& logs, const JobRequest& request) {
  if (request.rank && !logs.ranks().empty())
    return "this machine has no log files of rank " + std::to_string(*request.rank) + ", only of " + ranks_text(logs.ranks());
  return "the job has no log files" + std::string(request.has("--stderr") ? " of standard error" : "") +
         ": to get log files for a script, start it with --tee 3, --redirects 3 or --run-dir";
}

void print_logs_of_this_machine(const Found& found, const JobRequest& request) {
  const bool follow = request.has("-f") && found.job;
  // the log files of a starting job may not exist yet
  const bool starts = found.job && found.job->status.value("state", "") == "starting";
  Logs logs(found.logs, request.rank, request.has("--stderr"), found.job ? first_rank_here(found.job->status) : 0);
  const int inotify = follow ? ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;
  bool watched = follow && logs.watch(inotify);
  const bool cut = request.tail.has_value() || request.has("-f");
  logs.open_newest(cut ? std::optional(request.tail.value_or(kTailWhenFollowed)) : std::nullopt);
  if (!logs.any() && !(follow && starts)) throw UsageError(no_logs_reason(logs, request));
  logs.show_new(!follow);
  if (request.has("-f") && !follow)
    write_all(STDERR_FILENO,
              "ddprun logs: -f has no effect, since none of your running jobs on this machine writes to this folder\n");
  const int process = follow ? static_cast<int>(::syscall(SYS_pidfd_open, found.job->agent, 0)) : -1;
  bool runs = follow && process >= 0;
  while (runs) {
    std::array<pollfd, 3> ready{pollfd{inotify, POLLIN, 0}, pollfd{process, POLLIN, 0}, pollfd{STDOUT_FILENO, 0, 0}};
    ::poll(ready.data(), ready.size(), watched ? -1 : kPollMs);
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

int show_logs(const SubcommandArguments& arguments) {
  answer_on_first_host(arguments, "logs");
  if (const auto answer = answer_of_slurm_job(arguments, "logs")) return *answer;
  const JobRequest request(arguments);
  const Found found = find_logs(request.job);
  if (found.job && queries_all_nodes(*found.job, request)) {
    if (const LogsShown shown = show_logs_of_nodes(*found.job, request); shown != LogsShown::kNone)
      return shown == LogsShown::kAll ? 0 : 1;
    write_all(STDERR_FILENO, missing_nodes_message({}));
  }
  print_logs_of_this_machine(found, request);
  return 0;
}

}  // namespace ddprun
