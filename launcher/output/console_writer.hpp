// The agent's console: stdout and stderr as queues that never block the agent. A file or a pipe gets every line: whoever brings
// workers' output waits for it (is_behind, when_at_most), which bounds the queue. Only a terminal that is too slow may lose
// whole lines; their number is shown. When the reader closes its end, the stream closes silently. A thread of its own writes a
// regular file, since a file system may stall. On a terminal the progress bar stays below the lines. worker_output.cpp and
// console.cpp share it, on the agent's thread only.
//
// Note: shared open file descriptions. The shell and other processes may share stdout's, so O_NONBLOCK must not be set on it. A
// pipe or terminal is therefore opened again through /proc/self/fd, which gives a non-blocking description of our own. Where
// that is refused, each write waits until poll() says "writable", and is small enough not to block then. SIGPIPE must be
// ignored by the process.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/system/file_queue.hpp"
#include "launcher/events/stream.hpp"

namespace ddprun {

// How the console shows workers' output; the same for all workers.
struct OutputRules {
  bool json = false;        // lines become JSON objects on stdout
  bool show_stdout = true;  // false: workers' stdout goes to the logs only
  bool may_drop = true;     // may lose lines on a slow terminal; false: some stream is in no file
};

class ConsoleWriter {
 public:
  ConsoleWriter(boost::asio::io_context& io, int stdout_fd, int stderr_fd);
  ~ConsoleWriter();  // writes what is queued, but gives up when nobody reads for 2 s
  ConsoleWriter(const ConsoleWriter&) = delete;
  ConsoleWriter& operator=(const ConsoleWriter&) = delete;

  void set_rules(const OutputRules& rules);
  const OutputRules& rules() const { return rules_; }

  bool is_terminal(Stream stream) const;
  bool colours(Stream stream) const;  // true for a terminal, unless NO_COLOR is set
  int columns() const;                // the terminal's width; 80 when unknown
  winsize size(Stream stream) const;  // of a terminal; all 0 when unknown

  // One or more complete lines, each with its '\n'. They are all shown, or none of them.
  void lines(Stream stream, std::string_view text);
  // One of ddprun's own lines, without '\n'. Room is kept for such lines when workers' lines have filled the queue.
  void line(Stream stream, std::string_view text);
  // A JSON event for stdout, with its '\n'. Room is kept for it as well.
  void event(std::string_view text);
  // Writes a part of a line of `source`: `anew` (with its prefix) if that line is not open on the console, else `more`. `ends`:
  // both texts end with a newline; otherwise the line stays open until any other text comes. False when there was no room: the
  // line counts as dropped then, and its rest must not be written.
  bool part(Stream stream, int source, std::string_view anew, std::string_view more, bool ends);

  // Replaces the progress bar; an empty text removes it. Does nothing without a terminal or while the terminal's queue is not
  // empty.
  void set_bar(std::string_view text);

  // The stream on which workers' lines of `stream` are shown.
  Stream shown_on(Stream stream) const { return rules_.json ? Stream::kStdout : stream; }
  // Whether that stream drops no output of workers. Whoever reads that output must wait while the console is behind.
  bool shows_all(Stream stream) const;
  bool is_behind(Stream stream) const;  // more than half of the queue is used
  // Calls `act` once when at most `bytes` are queued, or nobody reads any more. Calls it at once if that is so already.
  void when_at_most(Stream stream, std::size_t bytes, std::function<void()> act);

  std::uint64_t dropped_lines() const;  // on both streams, until now

  // Queues of the streams that are regular files, whose file system may stall. stdout comes first.
  struct StreamFile {
    Stream stream{};
    FileQueue* queue = nullptr;  // never nullptr
  };
  std::vector<StreamFile> files() const;
  // Whether both streams are one file or terminal.
  bool is_one_file() const { return stdout_ == stderr_; }

  static constexpr std::size_t kQueueBytes = 1u << 20;

 private:
  class Sink;
  Sink& sink(Stream stream) const { return stream == Stream::kStdout ? *stdout_ : *stderr_; }

  OutputRules rules_;
  std::shared_ptr<Sink> stdout_;
  std::shared_ptr<Sink> stderr_;  // is stdout_ when both are one pipe or terminal, which keeps the order
};

}  // namespace ddprun
