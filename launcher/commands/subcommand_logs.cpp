// `ddprun logs`: what the workers of a job have written to log files, each line with its rank; with -f also what they will
// write. It reads the folders of logs only, so it works for a job that has ended, and for all nodes of a shared run directory.
// run_subcommand() calls it.
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

#include "common/base/error.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/chosen_job.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/events/stream.hpp"
#include "launcher/output/line_splitter.hpp"
#include "launcher/output/worker_output_files.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr int kTailWhenFollowed = 10;

int number_at_end(const std::string& name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  return digits < name.size() && name.size() - digits < 9 ? std::stoi(name.substr(digits)) : -1;
}

// The folders of the rounds below `logs`, "round-000" or "attempt_0", oldest first.
std::vector<fs::path> rounds_in(const fs::path& logs) {
  std::vector<fs::path> rounds;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(logs, error)) {
    const std::string name = entry.path().filename().string();
    if ((name.starts_with("round-") || name.starts_with("attempt_")) && number_at_end(name) >= 0)
      rounds.push_back(entry.path());
  }
  std::sort(rounds.begin(), rounds.end(),
            [](const fs::path& a, const fs::path& b) { return number_at_end(a.string()) < number_at_end(b.string()); });
  return rounds;
}

// The workers' folders of a round by the rank (of torchrun's layout: the local rank) that their names end with.
std::map<int, fs::path> workers_in(const fs::path& round) {
  std::map<int, fs::path> workers;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(round, error)) {
    const std::string name = entry.path().filename().string();
    if (const int rank = number_at_end(name); rank >= 0 && (name.starts_with("rank-") || std::isdigit(name[0]) != 0)) {
      workers[rank] = entry.path();
    }
  }
  return workers;
}

// One log file that is being shown.
struct Shown {
  int fd = -1;
  std::string prefix;
  LineSplitter lines;
};

class Logs {
 public:
  Logs(fs::path logs, std::optional<int> rank, bool only_errors)
      : logs_(std::move(logs)), rank_(rank), only_errors_(only_errors) {}
  ~Logs() {
    for (const auto& [name, shown] : files_) ::close(shown.fd);
  }
  Logs(const Logs&) = delete;
  Logs& operator=(const Logs&) = delete;

  // Each rank's newest files: after a live recovery the survivors write to those of an earlier round.
  void open_newest(std::optional<int> tail) {
    std::map<int, fs::path> newest;
    for (const fs::path& round : rounds_in(logs_)) {
      for (const auto& [rank, folder] : workers_in(round)) newest[rank] = folder;
    }
    several_ = newest.size() > 1;
    for (const fs::path& round : rounds_in(logs_)) {
      for (const auto& [rank, folder] : workers_in(round)) {
        if (folder != newest[rank]) earlier_.insert(folder);
      }
    }
    for (const auto& [rank, folder] : newest) open(rank, folder, tail);
  }
  // Files that have come since.
  void open_new() {
    for (const fs::path& round : rounds_in(logs_)) {
      for (const auto& [rank, folder] : workers_in(round)) {
        several_ = several_ || rank > 0;
        open(rank, folder, std::nullopt);
      }
    }
  }
  bool any() const { return !files_.empty(); }

  // `ends`: nothing more will come, so unfinished lines are shown as well.
  void show_new(bool ends) {
    for (auto& [name, shown] : files_) {
      char piece[65536];
      for (ssize_t count = 0; (count = ::read(shown.fd, piece, sizeof piece)) > 0;) {
        shown.lines.feed({piece, static_cast<std::size_t>(count)},
                         [&, &one = shown](std::string_view lines) { show(one, lines); });
      }
      if (ends && !shown.lines.rest().empty()) show(shown, shown.lines.take_rest() + "\n");
    }
  }

  // Wakes whenever something below the folder changes.
  void watch(int inotify) const {
    constexpr std::uint32_t kComes = IN_CREATE | IN_MOVED_TO;
    ::inotify_add_watch(inotify, logs_.c_str(), kComes);
    for (const fs::path& round : rounds_in(logs_)) {
      ::inotify_add_watch(inotify, round.c_str(), kComes);
      for (const auto& [rank, folder] : workers_in(round)) ::inotify_add_watch(inotify, folder.c_str(), kComes | IN_MODIFY);
    }
  }

 private:
  void open(int rank, const fs::path& folder, std::optional<int> tail) {
    if (rank_ && rank != *rank_) return;
    for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
      if (only_errors_ && stream == Stream::kStdout) continue;
      const FileName name{folder, stream == Stream::kStderr};
      const fs::path file = folder / log_name(stream);
      if (files_.contains(name) || earlier_.contains(folder)) continue;
      const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      Shown& shown = files_[name];
      shown.fd = fd;
      if (several_ && !rank_) shown.prefix = "[rank " + std::to_string(rank) + "] ";
      if (tail) ::lseek(fd, begin_of_tail(fd, *tail), SEEK_SET);
    }
  }

  // Where the last `count` lines begin: behind so many newlines, counted from the end. The newline at the very end is one more.
  static off_t begin_of_tail(int fd, int count) {
    off_t at = ::lseek(fd, 0, SEEK_END);
    if (count == 0 || at <= 0) return at;
    char piece[4096];
    int newlines = ::pread(fd, piece, 1, at - 1) == 1 && piece[0] == '\n' ? count + 1 : count;
    while (at > 0) {
      const auto size = static_cast<std::size_t>(std::min<off_t>(at, sizeof piece));
      at -= static_cast<off_t>(size);
      if (::pread(fd, piece, size, at) != static_cast<ssize_t>(size)) return 0;
      for (std::size_t i = size; i > 0; --i) {
        if (piece[i - 1] == '\n' && --newlines == 0) return at + static_cast<off_t>(i);
      }
    }
    return 0;
  }

  static void show(const Shown& shown, std::string_view lines) {
    if (shown.prefix.empty()) return print(std::string(lines));
    std::string text;
    while (!lines.empty()) {
      const std::size_t end = lines.find('\n') + 1;
      text.append(shown.prefix).append(lines.substr(0, end));
      lines.remove_prefix(end);
    }
    print(text);
  }

  fs::path logs_;
  std::optional<int> rank_;
  bool only_errors_;
  bool several_ = false;
  using FileName = std::pair<fs::path, bool>;  // the worker's folder; standard error follows standard output
  std::map<FileName, Shown> files_;
  std::set<fs::path> earlier_;  // folders of rounds before a rank's newest one: not shown
};

// The folder with the rounds: of a running job as it says, else of the run directory or log folder that `word` names.
struct Found {
  fs::path logs;
  pid_t agent = 0;      // 0: it does not run
  bool starts = false;  // its files may not be there yet
};
Found find_logs(const std::string& word) {
  for (const fs::path& folder : {fs::path(word) / "logs", fs::path(word)}) {
    if (word.empty() || rounds_in(folder).empty()) continue;
    for (const RunningJob& job : running_jobs()) {
      std::error_code error;
      if (job.status.is_object() && fs::equivalent(job.status.value("logs", ""), folder, error)) {
        return {folder, job.agent, false};
      }
    }
    return {folder, 0, false};
  }
  const RunningJob job = chosen_job(word);
  return {job.status.value("logs", ""), job.agent, job.status.value("state", "") == "starting"};
}

}  // namespace

int show_logs(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun logs [JOB] [-f] [--rank N] [--tail N] [--stderr]";
  constexpr std::array<std::string_view, 5> kAllowed{"JOB", "-f", "--rank", "--tail", "--stderr"};
  const JobRequest request = parse_job_request(args, kAllowed, kUsage);
  if (request.help) {
    print(std::string(kUsage) +
          "\nPrints what the workers wrote to log files, newest round: all of it, or the last N lines of each file."
          "\n  -f        go on with what comes, until the job ends; begins with the last 10 lines"
          "\n  --rank N  of that worker only"
          "\n  --stderr  standard error only"
          "\nJOB as for `ddprun status`, or the run directory or log folder of one that has ended.\n");
    return 0;
  }
  const Found found = find_logs(request.job);
  const bool follow = request.has("-f") && found.agent != 0;
  Logs logs(found.logs, request.rank, request.has("--stderr"));
  const int inotify = follow ? ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;
  if (follow) logs.watch(inotify);
  const bool cut = request.tail.has_value() || request.has("-f");
  logs.open_newest(cut ? std::optional(request.tail.value_or(kTailWhenFollowed)) : std::nullopt);
  if (!logs.any() && !(follow && found.starts)) {
    throw UsageError("that job writes no log files" + std::string(request.rank ? " of that rank here" : "") +
                     ": a script does with --tee 3, --redirects 3 or --run-dir");
  }
  logs.show_new(!follow);
  const int process = follow ? static_cast<int>(::syscall(SYS_pidfd_open, found.agent, 0)) : -1;
  bool runs = follow && process >= 0;
  while (runs) {
    std::array<pollfd, 2> ready{pollfd{inotify, POLLIN, 0}, pollfd{process, POLLIN, 0}};
    ::poll(ready.data(), ready.size(), -1);
    runs = ready[1].revents == 0;
    char events[4096];
    while (::read(inotify, events, sizeof events) > 0) {
    }
    logs.watch(inotify);  // folders may have come
    logs.open_new();
    logs.show_new(!runs);
  }
  return 0;
}

}  // namespace ddprun
