// The files that workers' output goes to, behind a queue: what a worker prints waits here while the file system does not take
// it, up to a bound for each of its streams. Whoever reads its pipe asks has_room() before he reads on, so that beyond the
// bound the worker waits in write(), and nobody else. Used by worker_output.cpp; one thread.
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
  // What can't be written, and errno.
  using Complain = std::function<void(const std::filesystem::path& file, int error)>;

  static constexpr std::size_t kMostWaiting = 1u << 20;  // bytes of one stream, and what keeping them costs
  // So long the start of a worker waits for its files. Without them it starts all the same: they come later.
  static constexpr std::chrono::milliseconds kForItsStart{100};

  WorkerLogs(FileQueue& files, std::size_t sources, Complain complain);
  ~WorkerLogs();  // closes them
  WorkerLogs(const WorkerLogs&) = delete;
  WorkerLogs& operator=(const WorkerLogs&) = delete;

  // Of a worker that is about to start. `stale`: an error file that is older than now is of an earlier round, and goes.
  enum class ErrorFiles { kNone, kStale };
  void make_round(const std::filesystem::path& folder);
  void make_worker(const std::filesystem::path& folder, ErrorFiles error_files);
  void open(std::size_t source, const std::filesystem::path& file);
  void open_copy(Stream stream, const std::filesystem::path& file, const std::vector<std::string>& filters);
  // Waits a moment until all of that is done.
  void settle() { files_.is_done_within(kForItsStart); }

  void write(std::size_t source, std::string_view data);
  // Whole lines. Those that a filter wants get into the stream's copy.
  void copy(std::size_t source, Stream stream, std::string_view lines, const std::string& prefix);
  void close(std::size_t source);
  void close_copies();

  // The open file, the caller's from now on; -1 when there is none, or none yet.
  int take(std::size_t source);
  bool has(std::size_t source) const { return logs_[source].file != nullptr; }

  bool has_room(std::size_t source) const { return logs_[source].waiting < kMostWaiting; }
  // Calls `act` once when half of the bound is free again.
  void when_room(std::size_t source, std::function<void()> act);

 private:
  // Used on the queue's thread only, but for take().
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
  // Does `work` behind the queue; what it returns is errno or 0, of `file`.
  void add(const std::filesystem::path& file, std::function<int()> work, std::function<void()> then = {});
  void add_bytes(std::size_t source, std::size_t bytes, const std::filesystem::path& file, std::function<int()> work);

  FileQueue& files_;
  Complain complain_;
  std::vector<Log> logs_;
  std::shared_ptr<Copy> copies_[2];
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // what the queue says later may outlast this
};

}  // namespace ddprun
