// The log files of workers, written through a queue. While a file system stalls, worker output waits here, up to a limit per
// stream. The reader of the worker's pipe calls has_room() before it reads more. Beyond the limit only that worker blocks in
// write(2); the agent and other workers continue. worker_output.cpp uses this class on one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/system/file_queue.hpp"
#include "launcher/events/stream.hpp"
#include "launcher/output/worker_output_files.hpp"

namespace ddprun {

class WorkerLogs {
 public:
  // Reports a file that can't be written. `error` is an errno.
  using Complain = std::function<void(const std::filesystem::path& file, int error)>;

  static constexpr std::size_t kMostWaiting = 1u << 20;  // limit per stream in bytes, including the bookkeeping memory
  // Maximum time for which the start of a worker waits for its files. After that the worker starts, and the files are created
  // later.
  static constexpr std::chrono::milliseconds kForItsStart{100};

  WorkerLogs(FileQueue& files, std::size_t sources, Complain complain);
  ~WorkerLogs();  // closes the files
  WorkerLogs(const WorkerLogs&) = delete;
  WorkerLogs& operator=(const WorkerLogs&) = delete;

  // Prepares files of a worker that is about to start. kStale: an error file older than now belongs to an earlier round and is
  // removed.
  enum class ErrorFiles { kNone, kStale };
  void make_round(const std::filesystem::path& folder);
  void make_worker(const std::filesystem::path& folder, ErrorFiles error_files);
  void open(std::size_t source, const std::filesystem::path& file);
  void open_copy(Stream stream, const std::filesystem::path& file, const std::vector<std::string>& filters);
  // Waits up to kForItsStart until the queued work is done.
  void settle() { files_.is_done_within(kForItsStart); }

  // Whether add() does the work on the calling thread (FileQueue::Begins::kAtOnce).
  bool is_at_once() const { return files_.is_at_once(); }

  void write(std::size_t source, std::string_view data);
  // Copies the complete lines that match a filter into the stream's filtered file.
  void copy(std::size_t source, Stream stream, std::string_view lines, const std::string& prefix);
  void close(std::size_t source);
  void close_copies();

  // Moves the open file to the caller; -1 if there is none (yet).
  int take(std::size_t source);
  bool has(std::size_t source) const { return logs_[source].file != nullptr; }

  bool has_room(std::size_t source) const { return logs_[source].waiting < kMostWaiting; }
  // Calls `act` once, when at least half of the limit is free again.
  void when_room(std::size_t source, std::function<void()> act);

 private:
  // Used on the queue's thread only, except by take().
  struct File {
    std::filesystem::path path;
    int fd = -1;
    void close();
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
  // Does `work` on the queue's thread. `work` returns 0 or the errno of an error with `file`.
  void add(const std::filesystem::path& file, std::function<int()> work, std::function<void()> then = {});
  void add_bytes(std::size_t source, std::size_t bytes, const std::filesystem::path& file, std::function<int()> work);

  FileQueue& files_;
  Complain complain_;
  std::vector<Log> logs_;
  std::shared_ptr<Copy> copies_[2];
  // liveness token: the queue's callbacks may run after this object is destroyed
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace ddprun
