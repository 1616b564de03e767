// What workers print: bytes from their pipes go whole into log files and, line by line, to the console: a train.json's with its
// rank before each line, a script's as its options say (worker_output_route.hpp). What is only redirected goes past us: the
// worker gets the file itself. Neither the console nor a file system blocks the agent: whoever reads what the console must not
// leave out waits for it, and for a file that takes nothing (launcher/agent/output_reader.hpp), and lines that do not fit on a
// slow terminal are counted and said, never lost in the files.
#pragma once

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

// Workers are named by their place on this node.
class WorkerOutput {
 public:
  // `files`: on whose thread all files are made, written and read.
  WorkerOutput(boost::asio::io_context& io, FileQueue& files, ConsoleWriter& console, WorkerOutputSettings settings);
  ~WorkerOutput();

  // A line without its end is shown after 100 ms, unless `unread(worker, stream)` says that more of it lies unread in the pipe:
  // then it is the reader that is late, not the worker. Without a function: nothing is ever unread.
  void set_unread(std::function<bool(int worker, Stream stream)> unread);

  // Makes the folders and files of the round: for each worker a folder, where its error file will be, and its log files.
  void begin_round(const OutputRound& round);
  // Before the worker starts: waits a moment until it has them.
  void begin_worker(int worker);
  // The worker is started anew while the others of an earlier round go on: its files are those of the new round.
  void begin_successor(int worker, const OutputRound& round);
  // Those that go on from an earlier round may have other ranks in this one; their files stay.
  void name_anew(const std::vector<RankAssignment>& ranks);
  // What the worker is to write to by itself, the caller's to close; -1: a pipe, whose bytes are to come here.
  int take_descriptor(int worker, Stream stream);
  void bytes(int worker, Stream stream, std::span<const char> data);
  void end_of_stream(int worker, Stream stream);  // flushes an unfinished line

  // In the files that workers of this round write to by themselves, past us; nothing while the file system does not answer.
  std::optional<std::uintmax_t> bytes_past_us() const;

  // Whether its log keeps up. Whoever reads the pipe waits otherwise, and with him the worker.
  bool has_room(int worker, Stream stream) const;
  // Calls `act` once when it does again.
  void when_room(int worker, Stream stream, std::function<void()> act);

  // The console is to get all of this, since it leaves nothing out or no file has it.
  bool is_awaited(int worker, Stream stream) const;
  bool any_is_awaited() const;  // of this node

  // The last lines the worker wrote to stderr in this round (at most 20, each at most 1 KiB).
  std::vector<std::string> stderr_tail(int worker) const;
  // The last exception that a script told there (last_exception.hpp); empty: none.
  std::string last_exception(int worker) const;
  int rank_of(int worker) const;  // in this round
  std::filesystem::path log_of(int worker, Stream stream) const;
  std::filesystem::path stderr_log(int worker) const;  // empty when there is none
  std::int64_t stderr_lines(int worker) const;         // in that file; 0: not known
  std::filesystem::path error_file(int worker) const;  // of this round; empty without files

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
