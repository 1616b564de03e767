// What workers print: bytes from their pipes go whole into logs/round-000/rank-00000/{stdout,stderr}.log and, line by line with
// a prefix, to the console. The console never blocks the agent: its queue is bounded, and lines that don't fit are counted and
// said, never lost in the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace ddprun {

enum class Stream { kStdout, kStderr };

class ConsoleWriter;  // console_writer.hpp: non-blocking, bounded, shared with the progress bar

class WorkerOutput {
 public:
  // `log_root` empty: no files. Files are made when a round begins.
  WorkerOutput(boost::asio::io_context& io, ConsoleWriter& console, std::filesystem::path log_root, int world_size);
  ~WorkerOutput();

  // A line without its end is shown after 100 ms, unless `unread(rank, stream)` says that more of it lies unread in the pipe:
  // then it is the reader that is late, not the worker. Without a function: nothing is ever unread.
  void set_unread(std::function<bool(int rank, Stream stream)> unread);

  void begin_round(int round);
  void bytes(int rank, Stream stream, std::span<const char> data);
  void end_of_stream(int rank, Stream stream);  // flushes an unfinished line
  // The last lines the rank wrote to stderr in this round (at most 20, each at most 1 KiB), kept in memory.
  std::vector<std::string> stderr_tail(int rank) const;
  std::filesystem::path stderr_log(int rank) const;
  std::filesystem::path rank_folder(int rank) const;  // of this round; holds error.json too

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
