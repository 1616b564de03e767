// The output of workers. Bytes from their pipes go unchanged to log files and, line by line, to the console. A train.json's
// lines have the rank as prefix; for a script the options decide (worker_output_route.hpp). A stream that is only redirected
// bypasses this class: the worker writes to the file itself. Neither the console nor a file system blocks the agent. The reader
// of a pipe (launcher/agent/output_reader.hpp) waits for a console that must show everything, and for a file whose queue is
// full. Lines that a slow terminal cannot show are counted there; the files always have them.
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

class FileQueue;      // common/system/file_queue.hpp
class ConsoleWriter;  // console_writer.hpp: non-blocking and bounded; draws the progress bar, too

struct WorkerOutputSettings {
  std::filesystem::path log_root{};  // empty: no files are written
  LogLayout layout = LogLayout::kRounds;
  int workers = 1;  // number of workers on this node
  KeptFiles kept = KeptFiles::kAll;
  std::optional<OutputPlan> script{};  // nullopt for a train.json
};

struct OutputRound {
  int round = 0;
  int restart_count = 0;
  std::vector<RankAssignment> ranks{};  // ranks of this node's workers; empty means 0, 1, ...
};

// `worker` is always the worker's index on this node.
class WorkerOutput {
 public:
  // All files are created, written and read on the thread of `files`.
  WorkerOutput(boost::asio::io_context& io, FileQueue& files, ConsoleWriter& console, WorkerOutputSettings settings);
  ~WorkerOutput();

  // An unfinished line is shown after 100 ms, unless `unread(worker, stream)` returns true. True means that the pipe has more
  // of the line: the reader is late, not the worker. Without this function the pipe is assumed to be empty.
  void set_unread(std::function<bool(int worker, Stream stream)> unread);

  // Creates the folders and files of the round: one folder per worker, with its log files. Its error file is written there
  // later.
  void begin_round(const OutputRound& round);
  // Call it before the worker starts. It waits a short time for the worker's files.
  void begin_worker(int worker);
  // A successor replaces this worker while the others continue from an earlier round. Its files are created in the new round's
  // folder.
  void begin_successor(int worker, const OutputRound& round);
  // Sets the ranks of workers that continue from an earlier round. Their ranks may differ in this round; their files stay.
  void name_anew(const std::vector<RankAssignment>& ranks);
  // Returns the file to which the worker writes directly; the caller closes it. -1: the worker gets a pipe, and its bytes must
  // be passed to this object.
  int take_descriptor(int worker, Stream stream);
  // The size of the terminal that the worker gets for that stream; nullopt if it gets a pipe. Output that only goes to this
  // console uses a pty if the console is a terminal. Programs then show colours and bars as if started there.
  std::optional<winsize> terminal_size(int worker, Stream stream) const;
  void bytes(int worker, Stream stream, std::span<const char> data);
  void end_of_stream(int worker, Stream stream);  // shows an unfinished line

  // Total size of the files to which workers of this round write directly; nullopt while the file system does not answer.
  std::optional<std::uintmax_t> bytes_past_us() const;

  // Whether the worker's log queue accepts more. If not, the pipe's reader must wait, which blocks the worker.
  bool has_room(int worker, Stream stream) const;
  // Calls `act` once, when the log queue accepts more again.
  void when_room(int worker, Stream stream, std::function<void()> act);

  // Whether the console must get all of this stream, because it drops no lines or because no file has the stream.
  bool is_awaited(int worker, Stream stream) const;
  bool any_is_awaited() const;  // for any worker on this node

  // The last lines that the worker wrote to stderr in this round (at most 20, each at most 1 KiB).
  std::vector<std::string> stderr_tail(int worker) const;
  // The last exception that a script wrote to stderr (last_exception.hpp); empty if there was none.
  std::string last_exception(int worker) const;
  int rank_of(int worker) const;  // rank in the current round
  std::filesystem::path log_of(int worker, Stream stream) const;
  std::filesystem::path stderr_log(int worker) const;  // empty if there is none
  std::int64_t stderr_lines(int worker) const;         // number of lines in that file; 0 if unknown
  std::filesystem::path error_file(int worker) const;  // path in the current round; empty without files

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
