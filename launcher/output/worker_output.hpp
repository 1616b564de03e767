// What workers print. Bytes from their pipes go unchanged to log files and, line by line, to the console: for a train.json with
// the rank before each line, for a script as its options say (worker_output_route.hpp). A stream that is only redirected does
// not come here: the worker writes to the file itself. Neither the console nor a file system blocks the agent. The reader of a
// pipe (launcher/agent/output_reader.hpp) waits for the console, if that must show everything, and for a file that accepts
// nothing. Lines that a slow terminal cannot show are counted on it, and are never missing in the files.
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
class ConsoleWriter;  // console_writer.hpp: non-blocking, bounded, shared with the progress bar

struct WorkerOutputSettings {
  std::filesystem::path log_root{};  // empty: no files
  LogLayout layout = LogLayout::kRounds;
  int workers = 1;  // on this node
  KeptFiles kept = KeptFiles::kAll;
  std::optional<OutputPlan> script{};  // absent for a train.json
};

struct OutputRound {
  int round = 0;
  int restart_count = 0;
  std::vector<RankAssignment> ranks{};  // of this node's workers; empty: 0, 1, ...
};

// `worker` is always the worker's index on this node.
class WorkerOutput {
 public:
  // All files are made, written and read on the thread of `files`.
  WorkerOutput(boost::asio::io_context& io, FileQueue& files, ConsoleWriter& console, WorkerOutputSettings settings);
  ~WorkerOutput();

  // Shows an unfinished line after 100 ms, unless `unread(worker, stream)` says that more of it waits in the pipe: then the
  // reader is late, not the worker. Without a function nothing is ever unread.
  void set_unread(std::function<bool(int worker, Stream stream)> unread);

  // Makes the folders and files of the round: a folder for each worker, in which its error file will be, and its log files.
  void begin_round(const OutputRound& round);
  // Call it before the worker starts: it waits a moment for the worker's files.
  void begin_worker(int worker);
  // The worker is replaced while others continue from an earlier round: its files are those of the new round.
  void begin_successor(int worker, const OutputRound& round);
  // Workers that continue from an earlier round may have other ranks in this one; their files stay.
  void name_anew(const std::vector<RankAssignment>& ranks);
  // The file to which the worker writes itself, for the caller to close. -1: a pipe, whose bytes must come here.
  int take_descriptor(int worker, Stream stream);
  // The size of the terminal that the worker gets for that stream; nothing: it gets a pipe. Output that goes to this console
  // and nowhere else goes through a terminal if the console is one: then programs show colours and bars as if started there.
  std::optional<winsize> terminal_size(int worker, Stream stream) const;
  void bytes(int worker, Stream stream, std::span<const char> data);
  void end_of_stream(int worker, Stream stream);  // flushes an unfinished line

  // The size of the files to which workers of this round write themselves; nothing while the file system does not answer.
  std::optional<std::uintmax_t> bytes_past_us() const;

  // Whether the worker's log keeps up. If not, whoever reads its pipe waits, and so does the worker.
  bool has_room(int worker, Stream stream) const;
  // Calls `act` once when it keeps up again.
  void when_room(int worker, Stream stream, std::function<void()> act);

  // Whether the console must get all of this stream: it drops nothing, or no file has the stream.
  bool is_awaited(int worker, Stream stream) const;
  bool any_is_awaited() const;  // for any worker of this node

  // The last lines the worker wrote to stderr in this round (at most 20, each at most 1 KiB).
  std::vector<std::string> stderr_tail(int worker) const;
  // The last exception that a script wrote to stderr (last_exception.hpp); empty: none.
  std::string last_exception(int worker) const;
  int rank_of(int worker) const;  // in this round
  std::filesystem::path log_of(int worker, Stream stream) const;
  std::filesystem::path stderr_log(int worker) const;  // empty when there is none
  std::int64_t stderr_lines(int worker) const;         // lines in that file; 0: not known
  std::filesystem::path error_file(int worker) const;  // of this round; empty without files

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
