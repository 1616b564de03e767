// Distributes the output of workers. The bytes from a worker's pipe are written unchanged to its log file and line by line to
// the console. With ddptrain each console line starts with the rank; with a script the options decide
// (worker_output_route.hpp). If a stream goes only to a file, the worker writes to the file directly. This class then does not
// receive the bytes.
//
// Neither the console nor a file system may block the agent. So each destination has a queue with a limit. The reader of a
// pipe (launcher/agent/output_reader.hpp) stops reading while the file's queue is full. It also stops while the console is
// slow, if the console must show the whole output. The worker then blocks in write(2). A slow terminal may instead drop lines
// that are also in a log file, and the console reports their number.
//
// Limits: kQueueBytes in console_writer.hpp, kMaxWaiting in worker_logs.hpp, kMaxLineBytes in line_splitter.hpp.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "launcher/events/stream.hpp"
#include "launcher/output/worker_output_files.hpp"
#include "launcher/output/worker_output_route.hpp"

namespace ddprun {

class FileQueue;      // defined in common/system/file_queue.hpp
class ConsoleWriter;  // the agent's stdout and stderr (console_writer.hpp)

struct WorkerOutputSettings {
  std::filesystem::path log_root{};  // folder of the log files; empty if none are written
  LogLayout layout = LogLayout::kRounds;
  int workers = 1;  // number of workers on this node
  KeptFiles kept = KeptFiles::kAll;
  std::optional<OutputPlan> script{};  // output options of a script; nullopt for ddptrain
};

struct OutputRound {
  int round = 0;
  int restart_count = 0;
  std::vector<RankAssignment> ranks{};  // ranks of this node's workers; if the list is empty, worker i has rank i
};

// The output of all workers on this node. The parameter `worker` is a local index.
class WorkerOutput {
 public:
  // `files` does all file work.
  WorkerOutput(boost::asio::io_context& io, FileQueue& files, ConsoleWriter& console, WorkerOutputSettings settings);
  ~WorkerOutput();

  // Sets a function that returns true if the pipe of a stream contains unread bytes. An unfinished line is normally shown after
  // 100 ms. It is not shown while there are unread bytes, since they may complete the line.
  void set_unread(std::function<bool(int worker, Stream stream)> unread);

  // Creates the directories of the round and opens its log files. Each worker has one directory. A worker that fails writes its
  // error file there.
  void begin_round(const OutputRound& round);
  // Call this before the worker starts. The call waits for a short time until the worker's log files are open.
  void begin_worker(int worker);
  // Call this when a new process replaces this worker, while the other workers keep running. The log files of the new process
  // are in the directory of the new round.
  void begin_replacement(int worker, const OutputRound& round);
  // Sets new ranks for workers that keep running in the next round. Their log files stay the same.
  void set_ranks(const std::vector<RankAssignment>& ranks);
  // Returns the descriptor of a file to which the worker writes directly. The caller must close it. -1 means that the worker
  // gets a pipe, whose bytes the caller must pass to bytes().
  int take_descriptor(int worker, Stream stream);
  // Returns the size of the pseudo-terminal for a stream, or nullopt if the stream needs a pipe. A stream that is shown only on
  // a terminal gets a pseudo-terminal. So programs print colours and progress bars as on the terminal itself.
  std::optional<winsize> terminal_size(int worker, Stream stream) const;
  void bytes(int worker, Stream stream, std::span<const char> data);
  void end_of_stream(int worker, Stream stream);  // call this when the pipe was closed; shows an unfinished line

  // Returns the total size in bytes of the files to which workers write directly in this round. Returns nullopt if the file
  // system does not answer within FileQueue::kMaxBlock.
  std::optional<std::uintmax_t> direct_file_bytes() const;

  // Returns false if the queue of the worker's log file is full. The reader of the pipe must then stop, so that the worker
  // blocks.
  bool has_space(int worker, Stream stream) const;
  // Calls `act` once, when the queue of the worker's log file accepts bytes again.
  void when_space(int worker, Stream stream, std::function<void()> act);

  // Returns true if no byte of the stream may be dropped on the console: either the console drops nothing, or no log file
  // contains the stream.
  bool is_awaited(int worker, Stream stream) const;
  bool any_is_awaited() const;  // true if is_awaited() is true for any stream of any worker

  // Returns the last lines that the worker wrote to stderr in this round: at most 20 lines of at most 1 KiB each.
  std::vector<std::string> stderr_tail(int worker) const;
  // Returns the last exception that a script wrote to stderr (last_exception.hpp), or "" if there was none.
  std::string last_exception(int worker) const;
  int rank_of(int worker) const;  // the worker's global rank in the current round
  std::filesystem::path log_of(int worker, Stream stream) const;
  std::filesystem::path stderr_log(int worker) const;  // empty if stderr has no log file
  std::int64_t stderr_lines(int worker) const;         // number of lines in stderr_log(); 0 if unknown
  std::filesystem::path error_file(int worker) const;  // path in the current round's directory; empty if no files are written

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
