#include "launcher/report_page/report_search.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <system_error>

#include "common/run_directory/run_directory.hpp"
#include "launcher/query/local/control_client.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// Returns whether `path` is a folder created by this user, and not a link. In a world-writable folder such as /tmp, other users
// may have created links to any path.
bool is_user_folder(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

// Finds this user's most recently modified report.
class NewestReport {
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
      if (which == Folders::kAny || is_user_folder(entry->path())) consider(RunLayout{entry->path()}.report());
    }
  }
  const fs::path& found() const { return found_; }

 private:
  fs::path found_;
  timespec written_{};
};

}  // namespace

fs::path report_in(const fs::path& folder) {
  fs::path run_report = RunLayout{folder}.report();
  std::error_code error;
  if (fs::exists(run_report, error)) return run_report;
  NewestReport newest;
  newest.consider_runs_in(folder);
  return newest.found().empty() ? run_report : newest.found();
}

fs::path report_of_newest_run() {
  NewestReport newest;
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
    if (folder.filename().string().starts_with("torchelastic_") && is_user_folder(folder))
      newest.consider_runs_in(folder, NewestReport::Folders::kOwn);
  }
  return newest.found();
}

}  // namespace ddprun
