// Reads what the workers of a round print, from the pipes that they were started with, and gives it to WorkerOutput. One chunk
// of one pipe at a time, so that a chatty worker does not keep the others waiting. Where the console is slow and has to get all
// of a worker's output, the worker waits for the console, as it would without us. Part of the agent's shell; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "launcher/events/stream.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/worker_output.hpp"

namespace ddprun {

class OutputReader {
 public:
  using Pipe = std::unique_ptr<boost::asio::posix::stream_descriptor>;
  struct Hooks {
    std::function<void(int rank)> printed;
    // A stream has ended, or a slow console has caught up: perhaps that was all.
    std::function<void()> ended;
  };

  OutputReader(ConsoleWriter& console, WorkerOutput& output, Hooks hooks);

  // For so many workers; there are no pipes yet, and nothing of an earlier round comes back.
  void begin_round(std::size_t workers);
  // Reads it from now on.
  void adopt(int rank, Stream stream, Pipe pipe);
  // Reads what a worker that has ended had printed: it may be evidence, and its successor has pipes of its own. It stops after
  // a while, since a child of the worker may print on.
  void drain(int rank);
  // A worker waits for a slow console, or will when its pipe is full: then it is not its fault that nothing comes.
  bool holds_back() const { return waiting_ > 0; }
  // Closes both pipes of that worker; whatever is unread is lost.
  void end(int rank);
  // A pipe is open.
  bool reading() const;
  bool has_unread(int rank, Stream stream) const;

 private:
  Pipe& pipe(int rank, Stream stream) { return pipes_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(stream)]; }
  int unread(int rank, Stream stream) const;
  void wait(int rank, Stream stream);
  bool waits_for_console(int rank, Stream stream) const;
  void listen(int rank, Stream stream);
  bool read(int rank, Stream stream);
  void end(int rank, Stream stream);

  ConsoleWriter& console_;
  WorkerOutput& output_;
  Hooks hooks_;
  std::vector<std::array<Pipe, 2>> pipes_;  // by local rank and Stream; null at the stream's end
  std::vector<char> chunk_;                 // shared by all pipes
  int round_ = 0;                           // counted here
  int waiting_ = 0;                         // pipes of the round that are not read until the console has caught up
};

}  // namespace ddprun
