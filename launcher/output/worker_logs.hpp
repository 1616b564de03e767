// Writes the log files of workers on a separate thread, so that a stalled file system does not block the agent.
// worker_output.cpp calls it on the agent's thread.
//
// While the file system stalls, worker output waits in memory, up to a limit per stream (kMaxWaiting). The reader of a worker's
// pipe calls has_space() before it reads more. At the limit it stops reading, so the pipe fills up and only this worker blocks
// in write(2). The agent and the other workers continue.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/system/descriptor.hpp"
#include "common/system/file_queue.hpp"
#include "launcher/events/stream.hpp"
#include "launcher/output/worker_output_files.hpp"

namespace ddprun {

class WorkerLogs {
 public:
  // This callback runs if `file` cannot be written. `error` is an errno.
  using OnError = std::function<void(const std::filesystem::path& file, int error)>;

  // Limit per stream in bytes, including kCostOfAPiece for each queued piece.
  static constexpr std::size_t kMaxWaiting = 1u << 20;
  // A worker's start waits at most this long for its log files to be opened. Then it starts anyway, and the files are opened
  // later.
  static constexpr std::chrono::milliseconds kStartTimeout{100};

  WorkerLogs(FileQueue& files, std::size_t sources, OnError on_error);
  ~WorkerLogs();  // closes the files
  WorkerLogs(const WorkerLogs&) = delete;
  WorkerLogs& operator=(const WorkerLogs&) = delete;

  // Selects how make_worker() handles an error file in the worker's directory. kStale: it removes a file that was written
  // before this call, since an earlier round wrote it. kNone: it keeps the file.
  enum class ErrorFiles { kNone, kStale };
  void make_round(const std::filesystem::path& folder);
  void make_worker(const std::filesystem::path& folder, ErrorFiles error_files);
  void open(std::size_t source, const std::filesystem::path& file);
  void open_copy(Stream stream, const std::filesystem::path& file, const std::vector<std::string>& filters);
  // Waits until the queued work is done, but at most kStartTimeout.
  void settle() { files_.wait_for(kStartTimeout); }

  // Returns true if file work runs on the calling thread (FileQueue::Mode::kInline).
  bool is_inline() const { return files_.is_inline(); }

  void write(std::size_t source, std::string_view data);
  // Writes the lines that match a filter to the stream's filtered file, with `prefix` before each. `lines` must be complete
  // lines.
  void copy(std::size_t source, Stream stream, std::string_view lines, const std::string& prefix);
  void close(std::size_t source);
  void close_copies();

  // Releases the open descriptor to the caller. Returns -1 if the source has no file or the file is not open yet.
  int take(std::size_t source);
  bool has(std::size_t source) const { return logs_[source].file != nullptr; }

  bool has_space(std::size_t source) const { return logs_[source].waiting < kMaxWaiting; }
  // Calls `act` once, when the queued bytes of the source have fallen to half of the limit.
  void when_space(std::size_t source, std::function<void()> act);

 private:
  // Only the queue's thread uses a File, with one exception: take() first waits until that thread is idle.
  struct File {
    std::filesystem::path path;
    Descriptor fd{};
  };
  struct Copy {
    std::filesystem::path path;
    FilteredCopy copy;
  };
  struct Log {
    std::shared_ptr<File> file;
    std::size_t waiting = 0;
    std::vector<std::function<void()>> waiters;
  };
  // Queues `work`, which returns 0 or the errno of a failed operation on `file`. Afterwards `then` runs on the owner's thread.
  void add(const std::filesystem::path& file, std::function<int()> work, std::function<void()> then = {});
  void add_bytes(std::size_t source, std::size_t bytes, const std::filesystem::path& file, std::function<int()> work);

  FileQueue& files_;
  OnError on_error_;
  std::vector<Log> logs_;
  std::shared_ptr<Copy> copies_[2];
  // Callbacks in the queue hold a weak pointer to alive_, to detect that this object was destroyed.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace ddprun
