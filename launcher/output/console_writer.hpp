// The agent's console: stdout and stderr as queues that never block the agent. A file or a pipe gets every line: whoever
// brings workers' output waits for it (is_behind, when_at_most), which bounds the queue. Only a terminal that is too slow may
// lose whole lines, which are counted and said. A reader that went away closes its stream silently. A regular file is written
// on a thread of its own, since its file system may stall.
// Also keeps the progress bar below the lines on a terminal. Shared by worker_output.cpp and console.cpp; used on the agent's
// thread only.
//
// Note: shared descriptions. stdout may be shared with the shell and with other processes, so O_NONBLOCK must not be set on it:
// a pipe or terminal is opened anew through /proc/self/fd (a description of our own, non-blocking), and where that is refused
// each write waits for poll() to say "writable" and is small enough not to block then. SIGPIPE must be ignored by the process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "launcher/events/stream.hpp"

namespace ddprun {

// How the console takes workers' output; the same for all of them.
struct OutputRules {
  bool json = false;        // lines become JSON objects on stdout
  bool show_stdout = true;  // false: workers' stdout goes to the logs only
  bool may_drop = true;     // on a terminal; false: not every stream is in a file
};

class ConsoleWriter {
 public:
  ConsoleWriter(boost::asio::io_context& io, int stdout_fd, int stderr_fd);
  ~ConsoleWriter();  // writes what is queued, giving up after 2 s in which nobody reads
  ConsoleWriter(const ConsoleWriter&) = delete;
  ConsoleWriter& operator=(const ConsoleWriter&) = delete;

  void set_rules(const OutputRules& rules);
  const OutputRules& rules() const { return rules_; }

  bool is_terminal(Stream stream) const;
  bool colours(Stream stream) const;  // a terminal, and NO_COLOR is unset
  int columns() const;                // of the terminal; 80 when unknown

  // One or more whole lines, each with its '\n'. They are shown together or not at all.
  void lines(Stream stream, std::string_view text);
  // A line of ddprun's own, without '\n'; such lines have room of their own when workers' have filled the queue.
  void line(Stream stream, std::string_view text);
  // The same of a JSON event, on stdout, with its '\n'.
  void event(std::string_view text);
  // Part of a line of `source`. `anew` is written when the line is not open on the console (with its prefix), `more` when it
  // is. `ends`: both end in a newline; otherwise the line stays open until the next text of anybody. False when there was no
  // room: the line then counts as left out, and the rest of it is not to be written.
  bool part(Stream stream, int source, std::string_view anew, std::string_view more, bool ends);

  // Replaces the bar; empty removes it. Nothing happens without a terminal or while its queue is not empty.
  void set_bar(std::string_view text);

  // Where workers' lines of this stream are shown.
  Stream shown_on(Stream stream) const { return rules_.json ? Stream::kStdout : stream; }
  // Nothing of workers' output is left out there, so whoever reads it from a worker waits until the console has caught up.
  bool shows_all(Stream stream) const;
  bool is_behind(Stream stream) const;  // more than half a queue is waiting
  // Calls `act` once when at most `bytes` are waiting, or nobody reads any more; at once when that is so already.
  void when_at_most(Stream stream, std::size_t bytes, std::function<void()> act);

  std::uint64_t dropped_lines() const;  // so far, of both streams

  static constexpr std::size_t kQueueBytes = 1u << 20;

 private:
  class Sink;
  Sink& sink(Stream stream) const { return stream == Stream::kStdout ? *stdout_ : *stderr_; }

  OutputRules rules_;
  std::shared_ptr<Sink> stdout_;
  std::shared_ptr<Sink> stderr_;  // the same as stdout_ when both are one pipe or terminal: order is kept then
};

}  // namespace ddprun
