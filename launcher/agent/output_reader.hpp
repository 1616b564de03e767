// Reads the output of a round's workers from their pipes or terminals and passes it to WorkerOutput. It reads one chunk of one
// pipe at a time, so that a worker with much output does not delay the others. If the console is slow and must show all of a
// worker's output, the worker waits for the console, as it would without ddprun. If a worker's log file accepts no more data,
// the worker waits for the file, and after a while a message names both. Part of the agent's shell; one thread.
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
  struct Hooks {
    std::function<void(int rank)> printed;
    // The first output since begin_round(). A call of `printed` follows.
    std::function<void(const FirstOutput& event)> first;
    // A stream has ended, or a slow console has caught up: the round's output may be complete.
    std::function<void()> ended;
    // Called when no worker waits for its log file any more.
    std::function<void()> goes_on;
  };

  OutputReader(boost::asio::io_context& io, ConsoleWriter& console, WorkerOutput& output, Hooks hooks);

  // Begins a round with that many workers, which have no pipes yet. Forgets the pipes of earlier rounds.
  void begin_round(std::size_t workers);
  // Starts to read this pipe.
  void adopt(int rank, Stream stream, Pipe pipe);
  // Reads the remaining output of an ended worker. It may be evidence, and the worker's replacement gets new pipes. The amount
  // is limited, since a child of the worker may still print.
  void drain(int rank);
  // All processes of the round have ended. The pipes contain a bounded rest, so it is read without waiting for log files.
  void nobody_writes();
  // True if a worker waits for its log file or a slow console, or will wait when its pipe is full. Then its missing output is
  // no sign of a hang.
  bool holds_back() const { return !held_.empty() || waiting_ > 0; }
  // Closes both pipes of that worker; unread output is lost.
  void end(int rank);
  // False if the stream is not a terminal.
  bool resize(int rank, Stream stream, const winsize& size) const;
  // True if any pipe is open.
  bool reading() const;
  bool has_unread(int rank, Stream stream) const;

 private:
  // The number of the newest pipe. A callback that was set up for an earlier one must do nothing.
  int adopted(int rank, Stream stream) const { return of_rank(adopted_, rank)[static_cast<std::size_t>(stream)]; }
  Pipe& pipe(int rank, Stream stream) { return of_rank(pipes_, rank)[static_cast<std::size_t>(stream)]; }
  int unread(int rank, Stream stream) const;
  bool is_full(int rank, Stream stream) const;
  void wait(int rank, Stream stream);
  bool waits_for_console(int rank, Stream stream) const;
  void wait_for_file(int rank, Stream stream);
  void name_those_that_wait();
  void listen(int rank, Stream stream);
  enum class Got { kBytes, kNothingYet, kEnd };
  Got read(int rank, Stream stream);
  void end(int rank, Stream stream);

  ConsoleWriter& console_;
  WorkerOutput& output_;
  Hooks hooks_;
  std::vector<std::array<Pipe, 2>> pipes_;                      // by local rank and Stream; null at the stream's end
  std::unique_ptr<char[]> chunk_;                               // shared by all pipes
  int round_ = 0;                                               // number of the round, counted by this class
  std::optional<std::chrono::steady_clock::time_point> began_;  // start of the round, while no worker has printed in it
  int waiting_ = 0;  // number of pipes that are not read until the console has caught up
  // A pipe that is not read while its log file accepts no data. held_ has the time since when.
  struct HeldPipe {
    int rank = 0;
    Stream stream{};
    int adopted = 0;                                    // the number of the pipe
    auto operator<=>(const HeldPipe&) const = default;  // NOLINT(modernize-use-nullptr): no pointer is here
  };
  std::map<HeldPipe, std::chrono::steady_clock::time_point> held_;
  std::vector<std::array<int, 2>> adopted_;  // number of the newest pipe, by local rank and Stream
  std::set<int> named_;                      // ranks whose file was named in a message in this round
  bool nobody_writes_ = false;
  boost::asio::steady_timer held_timer_;
};

}  // namespace ddprun
