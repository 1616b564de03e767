// `ddprun report`: shows the events of a run as text or as a page. Without a folder it shows the newest run. That is a running
// job, or a run below the current folder, `runs` in it, or the temporary folder of scripts. run_subcommand() calls it.
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/control/control_client.hpp"
#include "launcher/report/report.hpp"
#include "launcher/report/report_html.hpp"
#include "launcher/report/step_parts.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportUsage = "usage: ddprun report [FOLDER] [--json | --html FILE] [--open]";

// Whether `path` is a folder created by this user. In a world-writable place, folders and links of other users may lead
// anywhere.
bool is_own_folder(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

// The user's own report with the newest modification time.
class Newest {
 public:
  void consider(const fs::path& report) {
    struct stat info {};
    if (::lstat(report.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) return;
    const auto newer = [](const timespec& a, const timespec& b) {
      return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
    };
    if (!found_.empty() && !newer(info.st_mtim, written_)) return;
    found_ = report;
    written_ = info.st_mtim;
  }
  enum class Folders { kAny, kOwn };
  void consider_runs_in(const fs::path& folder, Folders which = Folders::kAny) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      if (which == Folders::kAny || is_own_folder(entry->path())) consider(RunLayout{entry->path()}.report());
    }
  }
  const fs::path& found() const { return found_; }

 private:
  fs::path found_;
  timespec written_{};
};

// The folder's own report, or that of the newest run below a --log-dir.
fs::path report_in(const fs::path& folder) {
  fs::path own = RunLayout{folder}.report();
  std::error_code error;
  if (fs::exists(own, error)) return own;
  Newest newest;
  newest.consider_runs_in(folder);
  return newest.found().empty() ? own : newest.found();
}

// Throws UsageError if there is none.
fs::path report_of_newest_run() {
  Newest newest;
  for (const RunningJob& job : running_jobs()) {
    if (job.status.is_object()) newest.consider(job.status.value("report", ""));
  }
  newest.consider(RunLayout{"."}.report());
  newest.consider_runs_in(".");
  newest.consider_runs_in("runs");
  std::error_code error;
  const char* const temporary = std::getenv("TMPDIR");
  const fs::path place = temporary != nullptr && temporary[0] != '\0' ? temporary : "/tmp";
  for (fs::directory_iterator entry(place, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& folder = entry->path();
    if (folder.filename().string().starts_with("torchelastic_") && is_own_folder(folder))
      newest.consider_runs_in(folder, Newest::Folders::kOwn);
  }
  if (newest.found().empty()) {
    throw UsageError(std::string("no run has left a report here, in runs or in the folder for temporary files; ") +
                     kReportUsage);
  }
  return newest.found();
}

// Starts xdg-open if there is a desktop. Returns false if the page cannot be shown.
bool open_in_browser(const std::string& page) {
  if (std::getenv("DISPLAY") == nullptr && std::getenv("WAYLAND_DISPLAY") == nullptr) return false;
  std::string name = "xdg-open";
  std::string argument = page;
  char* const argv[] = {name.data(), argument.data(), nullptr};
  pid_t pid = 0;
  int status = 0;
  if (::posix_spawnp(&pid, name.c_str(), nullptr, nullptr, argv, environ) != 0) return false;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct ReportRequest {
  std::string folder;  // empty: newest run
  std::string page;
  bool json = false;
  bool open = false;
};

// A file named with --html is opened and written, whatever its type. The default page next to a report is replaced by rename
// instead, since the folder's owner may have created a link of that name.
void write_page(const ReportRequest& request, const fs::path& page, const std::string& report, const fs::path& file) {
  const fs::path curves = RunLayout{file.parent_path()}.metrics();
  std::ifstream metrics;  // stays closed for a script without --run-dir
  std::error_code none;
  if (fs::is_regular_file(curves, none)) metrics.open(curves);
  try {
    const std::string text = report_page(report, metrics, file.string());
    request.page.empty() ? write_file_atomically(page, text) : static_cast<void>(write_named_file(page, text));
  } catch (const std::system_error& error) {
    throw UsageError("cannot write " + page.string() + ": " + error.what() + "; --html names another file");
  }
}

ReportRequest parse_report(std::span<const std::string> args) {
  ReportRequest request;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (word == "--json") {
      request.json = true;
    } else if (word == "--open") {
      request.open = true;
    } else if (word == "--html" && request.page.empty()) {
      if (i + 1 == args.size() || args[i + 1].empty())
        throw UsageError(std::string("--html needs the name of a file to write; ") + kReportUsage);
      request.page = args[++i];
    } else if (word.starts_with("-") || !request.folder.empty()) {
      throw UsageError("'" + word + "' is one too many; " + kReportUsage);
    } else if (word.empty()) {  // probably an unset variable, which must not select the newest run
      throw UsageError(std::string("FOLDER is an empty word; ") + kReportUsage);
    } else {
      request.folder = word;
    }
  }
  if (request.json && (request.open || !request.page.empty()))
    throw UsageError(std::string("--json prints the report, --html and --open write a page: name one of them; ") +
                     kReportUsage);
  return request;
}

}  // namespace

int show_report(std::span<const std::string> args) {
  if (!args.empty() && (args.front() == "--help" || args.front() == "-h")) {
    print(std::string(kReportUsage) +
          "\nTells what happened in a run: rounds, failures with their evidence, and how it ended. FOLDER is "
          "its run directory,\nthe folder of its logs, or what --log-dir named: then of the newest run there. Without it: "
          "the newest run of yours that\nruns here, or has left a report here, in runs or in the folder for temporary files.\n"
          "--html writes it, with the curves of metrics.jsonl, as one page that needs nothing else.\n"
          "--open writes the page too, as report.html beside the report if --html names no other file, and shows it.\n");
    return 0;
  }
  const ReportRequest request = parse_report(args);
  fs::path file = request.folder.empty() ? report_of_newest_run() : fs::path(request.folder);
  if (fs::is_directory(file)) file = report_in(file);
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw UsageError("cannot read " + file.string() + ": " + std::strerror(errno) +
                     ". Name the run directory or the log folder of a job that was started");
  std::ostringstream text;
  text << in.rdbuf();
  if (!request.page.empty() || request.open) {
    const fs::path page = request.page.empty() ? file.parent_path() / "report.html" : fs::path(request.page);
    write_page(request, page, text.str(), file);
    if (!request.open) return 0;
    const std::string place = fs::absolute(page).lexically_normal().string();
    print(open_in_browser(place) ? "opened " + place + "\n" : "the page is " + place + "\n");
    return 0;
  }
  const StepParts steps = step_parts_of(RunLayout{file.parent_path()}.metrics());
  const std::string rendered = render_report(text.str(), file.string(), steps.text(), steps.memory_text(),
                                             steps.skipped_text());         // also checks the report's format
  print(request.json ? text.str() : printable(rendered, LineEnds::kKeep));  // escaped, since it quotes workers
  return 0;
}

}  // namespace ddprun
