// Implementation of report_file.hpp. If a text arrives while an older one waits for the disk, it replaces the older one. A
// stalled disk therefore never delays more than one text.
#include "launcher/report/report_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <optional>

#include "common/shared_folder/others_link.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/write_all.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Sync = ReportFile::Sync;

// Replaces the file without fsync (see the Note in report.hpp). Returns 0, or an errno if the file does not contain the text.
int replace_file(const fs::path& file, std::string_view text) noexcept {
  try {
    const std::string temporary = file.string() + ".new";
    const int fd = open_unless_others_link(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return errno;
    int error = write_all(fd, text);
    if (::close(fd) != 0 && error == 0) error = errno;
    if (error == 0 && ::rename(temporary.c_str(), file.c_str()) == 0) return 0;
    if (error == 0) error = errno;
    ::unlink(temporary.c_str());
    return error;
  } catch (...) {
    return ENOMEM;
  }
}

// Writes the file and returns 0 or an errno. Never throws, because a full disk must not change how the job ends.
int put(const fs::path& file, const std::string& text, Sync sync) {
  if (sync == Sync::kYes) {
    try {
      write_file_atomically(file, text);
      return 0;
    } catch (const std::exception&) {
      // If fsync is not possible, the fallback below writes the file without fsync. A power failure may then lose the text, but
      // without the fallback no file would be written.
    }
  }
  return replace_file(file, text);
}

}  // namespace

struct ReportFile::Newest {
  std::mutex mutex;
  std::optional<std::string> text;  // the text to write next
  Sync sync = Sync::kNo;
  bool queued = false;  // the queue contains work that will write `text`
  int error = 0;
};

ReportFile::ReportFile(fs::path path) : path_(std::move(path)), newest_(std::make_shared<Newest>()) {}

void ReportFile::write_behind(FileQueue& files, std::function<void(std::string_view text)> keep, Later later) {
  files_ = &files;
  keep_ = std::move(keep);
  later_ = std::move(later);
}

void ReportFile::write(std::string text, Sync sync) {
  if (files_ == nullptr) {
    newest_->error = put(path_, text, sync);
    return;
  }
  keep_text(std::move(text), sync);
  add_piece();
}

void ReportFile::write_deferred(std::string text) {
  if (files_ == nullptr || files_->is_inline() || !later_) return write(std::move(text));
  if (keep_text(std::move(text), Sync::kNo)) return;
  later_([this, newest = std::weak_ptr<Newest>(newest_)] {
    if (!newest.expired()) add_piece();
  });
}

// Stores the text as the next one to write. Returns true if an earlier text was still waiting: the queued task for that text
// then writes this one instead.
bool ReportFile::keep_text(std::string text, Sync sync) {
  if (keep_ && !files_->is_inline()) keep_(text);
  const std::lock_guard lock(newest_->mutex);
  const bool waited = newest_->text.has_value();
  newest_->text = std::move(text);
  newest_->sync = sync;
  return waited;
}

void ReportFile::add_piece() {
  {
    const std::lock_guard lock(newest_->mutex);
    if (newest_->queued || !newest_->text) return;
    newest_->queued = true;
  }  // unlocked before add(), because add() may do the work on this thread, and the work locks the mutex
  files_->add(
      [to = newest_, where = path_] {
        std::unique_lock taking(to->mutex);
        const std::string taken = *std::exchange(to->text, std::nullopt);
        const Sync how = to->sync;
        to->queued = false;
        taking.unlock();
        const int error = put(where, taken, how);
        taking.lock();
        to->error = error;
      },
      {}, std::make_shared<const fs::path>(path_));
}

int ReportFile::error() const {
  const std::lock_guard lock(newest_->mutex);
  return newest_->error;
}

}  // namespace ddprun
