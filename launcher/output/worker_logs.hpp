// The log files of workers, behind a queue: while a file system stalls, a worker's output waits here, up to a bound for each of
// its streams. The code that reads its pipe asks has_room() before it reads on. So beyond the bound that worker blocks in
// write(2), and nobody else. worker_output.cpp uses it; one thread.
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
  // Reports a file that can't be written, with errno.
  using Complain = std::function<void(const std::filesystem::path& file, int error)>;

  static constexpr std::size_t kMostWaiting = 1u << 20;  // bytes of one stream, including the cost of keeping them
  // How long the start of a worker waits for its files. The worker starts without them then, and they are made later.
  static constexpr std::chrono::milliseconds kForItsStart{100};

  WorkerLogs(FileQueue& files, std::size_t sources, Complain complain);
  ~WorkerLogs();  // closes the files
  WorkerLogs(const WorkerLogs&) = delete;
  WorkerLogs& operator=(const WorkerLogs&) = delete;

  // For a worker that is about to start. kStale: an error file older than now is from an earlier round and is removed.
  enum class ErrorFiles { kNone, kStale };
  void make_round(const std::filesystem::path& folder);
  void make_worker(const std::filesystem::path& folder, ErrorFiles error_files);
  void open(std::size_t source, const std::filesystem::path& file);
  void open_copy(Stream stream, const std::filesystem::path& file, const std::vector<std::string>& filters);
  // Waits up to kForItsStart until all of that is done.
  void settle() { files_.is_done_within(kForItsStart); }

  // Whether all of that is done by whoever asks for it (FileQueue::Begins).
  bool is_at_once() const { return files_.is_at_once(); }

  void write(std::size_t source, std::string_view data);
  // Copies those of the complete lines that a filter wants into the stream's filtered file.
  void copy(std::size_t source, Stream stream, std::string_view lines, const std::string& prefix);
  void close(std::size_t source);
  void close_copies();

  // Gives the open file to the caller; -1 when there is none, or none yet.
  int take(std::size_t source);
  bool has(std::size_t source) const { return logs_[source].file != nullptr; }

  bool has_room(std::size_t source) const { return logs_[source].waiting < kMostWaiting; }
  // Calls `act` once when half of the bound is free again.
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
  // Does `work` on the queue's thread. It returns errno or 0, for `file`.
  void add(const std::filesystem::path& file, std::function<int()> work, std::function<void()> then = {});
  void add_bytes(std::size_t source, std::size_t bytes, const std::filesystem::path& file, std::function<int()> work);

  FileQueue& files_;
  Complain complain_;
  std::vector<Log> logs_;
  std::shared_ptr<Copy> copies_[2];
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // the queue's callbacks may outlive this object
};

}  // namespace ddprun
