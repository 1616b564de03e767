// The agent's console: stdout and stderr as queues that never block the agent. worker_output.cpp and console.cpp share this
// object and use it only on the agent's thread.
//
// A console can be slower than the workers: a terminal scrolls slowly, `| less` stops reading, a network file system stalls. If
// the agent waited for the console, its other work would be late, for example the renewal of the worker lease. If the queue had
// no limit, the agent would run out of memory. So the rule depends on the kind of console:
// - A file or a pipe gets every line, since a program may depend on them. When the queue is half full (is_behind), the agent
//   stops reading from the workers until the queue is short again (when_at_most). Workers then block in write(2).
// - A terminal may lose whole lines if log files contain them. The console shows the number of lost lines.
// - If the reader has closed its end, all further text is dropped, and the job continues.
//
// A regular file is written by a separate thread, since its file system may stall. On a terminal the progress bar stays below
// all lines.
//
// Note: shared open file descriptions. The shell and other processes may share the open file description of stdout. O_NONBLOCK
// is a flag of that description, so setting it would affect those processes. A pipe or terminal is therefore reopened through
// /proc/self/fd, which gives a separate non-blocking description. If the reopen fails, ddprun writes only when poll() reports
// the descriptor as writable. Each write is then small enough not to block. The process must ignore SIGPIPE.
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

// The rules by which the console shows worker output. They are the same for all workers.
struct OutputRules {
  bool json = false;        // --json: lines become JSON objects on stdout
  bool show_stdout = true;  // false: the workers' stdout is written to the log files only
  bool may_drop = true;     // true: a slow terminal may lose lines; false if any stream has no log file
};

class ConsoleSink;  // one of the two streams (console_sink.hpp)

class ConsoleWriter {
 public:
  ConsoleWriter(boost::asio::io_context& io, int stdout_fd, int stderr_fd);
  ~ConsoleWriter();  // writes the queued text, but gives up if the reader accepts nothing for 2 s
  ConsoleWriter(const ConsoleWriter&) = delete;
  ConsoleWriter& operator=(const ConsoleWriter&) = delete;

  void set_rules(const OutputRules& rules);
  const OutputRules& rules() const { return rules_; }

  bool is_terminal(Stream stream) const;
  bool colours(Stream stream) const;  // true for a terminal, unless the environment sets NO_COLOR
  int columns() const;                // width of the terminal; 80 if unknown
  winsize size(Stream stream) const;  // size of the terminal; all 0 if unknown

  // Writes one or more complete lines of worker output, each with its '\n'. If the queue is full, all of them are dropped.
  void lines(Stream stream, std::string_view text);
  // Writes one of ddprun's own lines; `text` has no '\n'. A part of the queue is reserved for such lines, so worker output
  // cannot fill it.
  void line(Stream stream, std::string_view text);
  // Writes a JSON event to stdout; `text` ends with '\n'. The reserved part of the queue is used, as in line().
  void event(std::string_view text);
  // Writes a part of a line that belongs to the stream `source`. If the unfinished line is still the last line on the console,
  // only `more` is written. Otherwise `full_text`, which includes the prefix, is written. `ends` is true if both texts end
  // with a newline; otherwise the line stays unfinished. Returns false if the queue is full: the line counts as dropped, and
  // the caller must not write the rest of it.
  bool part(Stream stream, int source, std::string_view full_text, std::string_view more, bool ends);

  // Draws a new progress bar in place of the old one; an empty text removes it. Has no effect if there is no terminal, or
  // while text waits in the queue.
  void set_bar(std::string_view text);

  // Returns the stream on which the console shows the worker output that was written to `stream`. With --json it is always
  // stdout.
  Stream shown_on(Stream stream) const { return rules_.json ? Stream::kStdout : stream; }
  // Returns true if the console drops no worker output of this stream. The agent must then stop reading it while is_behind() is
  // true.
  bool shows_all(Stream stream) const;
  bool is_behind(Stream stream) const;  // true if more than half of the queue is used
  // Calls `act` once, when at most `bytes` are queued or the reader has closed its end. `act` may be called before this
  // function returns.
  void when_at_most(Stream stream, std::size_t bytes, std::function<void()> act);

  std::uint64_t dropped_lines() const;  // number of dropped lines on both streams since the start

  // Returns the file queues of the streams that are regular files, stdout first. finish_files() waits for them at the end.
  struct StreamFile {
    Stream stream{};
    FileQueue* queue = nullptr;  // never nullptr
  };
  std::vector<StreamFile> files() const;
  // Returns true if stdout and stderr are the same file, pipe or terminal.
  bool is_one_file() const { return stdout_ == stderr_; }

  static constexpr std::size_t kQueueBytes = 1u << 20;

 private:
  ConsoleSink& sink(Stream stream) const { return stream == Stream::kStdout ? *stdout_ : *stderr_; }

  OutputRules rules_;
  std::shared_ptr<ConsoleSink> stdout_;
  // This is the same object as stdout_ if both are the same file, so that the order of lines is kept.
  std::shared_ptr<ConsoleSink> stderr_;
};

}  // namespace ddprun
