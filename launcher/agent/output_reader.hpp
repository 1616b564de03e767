// Reads the output of a round's workers from their pipes or terminals and passes it to WorkerOutput. It reads one chunk of one
// pipe at a time, so that a worker with much output does not delay the others. A slow console may have to show all output of a
// worker. Then the worker's pipe fills and the worker's write() blocks, as it would without ddprun. The same happens if the
// worker's log file accepts no more data. If this lasts two seconds, a message names the rank and the file. The class is part
// of the agent's shell and runs on one thread.
#pragma once

#include <sys/ioctl.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/check.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/events/stream.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/worker_output.hpp"

namespace ddprun {

class OutputReader {
 public:
  using Pipe = std::unique_ptr<boost::asio::posix::stream_descriptor>;
  struct Agent {
    virtual void on_output(int rank) = 0;
    virtual void publish(const RunEvent& event) = 0;  // called only with FirstOutput, before on_output()
    // The reader calls this when a stream has ended or a slow console has caught up. The output of the round may then be
    // complete.
    virtual void check_round_end() = 0;
    // The reader calls this when no worker is still blocked because of its log file.
    virtual void on_output_resumed() = 0;

   protected:
    ~Agent() = default;
  };

  // Receives a copy of the output of all workers: the rank in the job, the stream, and the bytes in chunks of any size.
  using Tap = std::function<void(int rank, Stream stream, std::string_view bytes)>;

  OutputReader(boost::asio::io_context& io, ConsoleWriter& console, WorkerOutput& output, Agent& agent);
  void set_tap(Tap tap) { tap_ = std::move(tap); }

  // Prepares for a round with this number of workers and drops the pipes of the previous round. adopt() then adds the new
  // pipes.
  void begin_round(std::size_t workers);
  // Takes ownership of the pipe from which the agent reads this stream, and starts to read it.
  void adopt(int rank, Stream stream, Pipe pipe);
  // Reads the remaining output of a worker that has exited. This output may explain a failure, and it must be read before the
  // worker's replacement gets new pipes. At most 64 chunks are read, since a child of the worker may still print.
  void drain(int rank);
  // Call this when all processes of the round have exited. Their remaining output is at most the content of the pipes. So it is
  // read completely, even if log files are slow.
  void all_writers_ended();
  // Returns true if a worker's output is not being read, because its log file or the console is slow. If a worker prints
  // nothing during this time, it may be blocked, so it does not count as hung.
  bool is_throttling() const { return !paused_.empty() || waiting_ > 0; }
  // Closes both pipes of this worker. Output that was not read is lost.
  void end(int rank);
  // Sets the size of the terminal to which the worker writes this stream. Returns false if the stream is not a terminal.
  bool resize(int rank, Stream stream, const winsize& size) const;
  // Returns true while any worker's pipe is open.
  bool reading() const;
  bool has_unread(int rank, Stream stream) const;

 private:
  // Returns the number of pipes that this stream has had. A callback stores this number when it is registered. If the number
  // has changed when the callback runs, its pipe was replaced, and the callback does nothing.
  int adopted(int rank, Stream stream) const { return of_rank(adopted_, rank)[static_cast<std::size_t>(stream)]; }
  Pipe& pipe(int rank, Stream stream) { return of_rank(pipes_, rank)[static_cast<std::size_t>(stream)]; }
  int unread(int rank, Stream stream) const;
  bool is_full(int rank, Stream stream) const;
  void wait(int rank, Stream stream);
  bool waits_for_console(int rank, Stream stream) const;
  void wait_for_file(int rank, Stream stream);
  void report_blocked_ranks();
  void listen(int rank, Stream stream);
  enum class ReadResult { kBytes, kWouldBlock, kEnd };
  ReadResult read(int rank, Stream stream);
  void end(int rank, Stream stream);

  ConsoleWriter& console_;
  WorkerOutput& output_;
  Agent& agent_;
  Tap tap_;                                 // may be empty
  std::vector<std::array<Pipe, 2>> pipes_;  // indices: local rank, Stream; null after the end of the stream
  std::unique_ptr<char[]> chunk_;           // read buffer, used for one pipe at a time
  int round_ = 0;                           // counts the calls to begin_round(), to detect callbacks of an earlier round
  // Start of the round; nullopt after the first output of the round.
  std::optional<std::chrono::steady_clock::time_point> started_;
  int waiting_ = 0;  // number of pipes that are not read because the console is slow
  // A pipe that is not read, because the worker's log file accepts no data. paused_ maps it to the start of the pause.
  struct PausedPipe {
    int rank = 0;
    Stream stream{};
    int adopted = 0;                                      // value of adopted() when the pause started
    auto operator<=>(const PausedPipe&) const = default;  // NOLINT(modernize-use-nullptr): a false alarm
  };
  std::map<PausedPipe, std::chrono::steady_clock::time_point> paused_;
  std::vector<std::array<int, 2>> adopted_;  // the counts that adopted() returns, by local rank and Stream
  std::set<int> reported_ranks_;             // local ranks whose log file was already reported as blocked in this round
  bool all_writers_ended_ = false;
  boost::asio::steady_timer paused_timer_;
};

}  // namespace ddprun
