// Implementation of worker_logs.hpp. Each operation becomes one piece of work on the FileQueue. A shared pointer keeps a file
// open until its last piece of work is done.
#include "launcher/output/worker_logs.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "common/system/write_all.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// The number of bytes that each queued piece costs in addition to its data. They count towards kMaxWaiting, since a worker that
// prints single bytes could otherwise fill the memory.
constexpr std::size_t kCostOfAPiece = 256;

std::size_t index_of(Stream stream) {
  return stream == Stream::kStdout ? 0 : 1;
}

// Returns the current time of the clock from which file systems take timestamps. Compare it with the mtime of a file.
timespec time_of_files() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now;
}

void remove_if_older(const fs::path& file, const timespec& time) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return;
  const timespec& written = info.st_mtim;
  const bool older = written.tv_sec < time.tv_sec || (written.tv_sec == time.tv_sec && written.tv_nsec < time.tv_nsec);
  if (older) ::unlink(file.c_str());
}

}  // namespace

WorkerLogs::WorkerLogs(FileQueue& files, std::size_t sources, OnError on_error)
    : files_(files), on_error_(std::move(on_error)), logs_(sources) {}

WorkerLogs::~WorkerLogs() {
  for (std::size_t source = 0; source < logs_.size(); ++source) close(source);
  close_copies();
}

void WorkerLogs::add(const fs::path& file, std::function<int()> work, std::function<void()> then) {
  const auto error = std::make_shared<int>(0);
  files_.add([error, work = std::move(work)] { *error = work(); },
             [this, error, file, then = std::move(then), alive = std::weak_ptr<int>(alive_)] {
               if (alive.expired()) return;
               if (*error != 0) on_error_(file, *error);
               if (then) then();
             },
             std::make_shared<const fs::path>(file));
}

void WorkerLogs::add_bytes(std::size_t source, std::size_t bytes, const fs::path& file, std::function<int()> work) {
  const std::size_t cost = bytes + kCostOfAPiece;
  logs_[source].waiting += cost;
  add(file, std::move(work), [this, source, cost] {
    Log& log = logs_[source];
    log.waiting -= cost;
    if (log.waiting > kMaxWaiting / 2) return;
    for (const auto& act : std::exchange(log.waiters, {})) act();
  });
}

void WorkerLogs::make_round(const fs::path& folder) {
  add(folder, [folder] { return make_folder(folder); });
}

void WorkerLogs::make_worker(const fs::path& folder, ErrorFiles error_files) {
  add(folder, [folder, error_files, now = time_of_files()] {
    if (const int error = make_folder(folder)) return error;
    if (error_files == ErrorFiles::kStale) remove_if_older(folder / "error.json", now);
    return 0;
  });
}

void WorkerLogs::open(std::size_t source, const fs::path& file) {
  close(source);
  const auto opened = std::make_shared<File>(File{file});
  logs_[source].file = opened;
  add(file, [opened] {
    opened->fd = Descriptor(open_log(opened->path));
    return opened->fd.get() < 0 ? errno : 0;
  });
}

void WorkerLogs::open_copy(Stream stream, const fs::path& file, const std::vector<std::string>& filters) {
  const auto opened = std::make_shared<Copy>();
  opened->path = file;
  copies_[index_of(stream)] = opened;
  add(file, [opened, filters] { return opened->copy.open(opened->path, filters); });
}

void WorkerLogs::write(std::size_t source, std::string_view data) {
  const std::shared_ptr<File>& file = logs_[source].file;
  if (!file) return;
  add_bytes(source, data.size(), file->path,
            [file, text = std::string(data)] { return file->fd.get() < 0 ? 0 : write_all(file->fd.get(), text); });
}

void WorkerLogs::copy(std::size_t source, Stream stream, std::string_view lines, const std::string& prefix) {
  const std::shared_ptr<Copy>& file = copies_[index_of(stream)];
  if (!file) return;
  add_bytes(source, lines.size(), file->path,
            [file, text = std::string(lines), prefix] { return file->copy.add(text, prefix); });
}

// The file is closed on the queue's thread, since close(2) may also block on a file system.
void WorkerLogs::close(std::size_t source) {
  if (const auto file = std::exchange(logs_[source].file, nullptr))
    files_.add([file] { file->fd = Descriptor(); }, {}, {file, &file->path});
}

void WorkerLogs::close_copies() {
  for (std::shared_ptr<Copy>& each : copies_) {
    if (const auto file = std::exchange(each, nullptr)) files_.add([file] { file->copy = {}; }, {}, {file, &file->path});
  }
}

int WorkerLogs::take(std::size_t source) {
  if (!logs_[source].file || !files_.wait_for(kStartTimeout) || logs_[source].file->fd.get() < 0) return -1;
  return std::exchange(logs_[source].file, nullptr)->fd.release();
}

void WorkerLogs::when_space(std::size_t source, std::function<void()> act) {
  logs_[source].waiters.push_back(std::move(act));
}

}  // namespace ddprun
