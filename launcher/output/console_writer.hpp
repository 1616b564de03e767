// The agent's console: stdout and stderr as queues that never block the agent. A file or a pipe gets every line. Producers of
// worker output are throttled (is_behind, when_at_most), which bounds the queue. Only a slow terminal may lose whole lines;
// their number is shown. If the reader closes its end, the stream closes silently. A separate thread writes a regular file,
// since a file system may stall. On a terminal the progress bar stays below the lines. worker_output.cpp and console.cpp share
// this object and use it on the agent's thread only.
//
// Note: shared open file descriptions. The shell and other processes may share the open file description of stdout, so
// O_NONBLOCK must not be set on it. A pipe or terminal is therefore reopened through /proc/self/fd, which gives a separate
// non-blocking description. If the reopen is refused, each write waits until poll() reports the descriptor as writable, and is
// small enough not to block then. SIGPIPE must be ignored by the process.
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

// How the console shows worker output. The same rules apply to all workers.
struct OutputRules {
  bool json = false;        // lines become JSON objects on stdout
  bool show_stdout = true;  // false: worker stdout goes to the logs only
  bool may_drop = true;     // a slow terminal may lose lines; false if some stream is written to no file
};

class ConsoleWriter {
 public:
  ConsoleWriter(boost::asio::io_context& io, int stdout_fd, int stderr_fd);
  ~ConsoleWriter();  // writes the queued text, but gives up after 2 s without a reader
  ConsoleWriter(const ConsoleWriter&) = delete;
  ConsoleWriter& operator=(const ConsoleWriter&) = delete;

  void set_rules(const OutputRules& rules);
  const OutputRules& rules() const { return rules_; }

  bool is_terminal(Stream stream) const;
  bool colours(Stream stream) const;  // true for a terminal, unless NO_COLOR is set
  int columns() const;                // width of the terminal; 80 if unknown
  winsize size(Stream stream) const;  // size of the terminal; all 0 if unknown

  // Writes one or more complete lines, each with its '\n'. Either all of them are shown or none.
  void lines(Stream stream, std::string_view text);
  // Writes one of ddprun's own lines, without '\n'. Space is reserved for such lines even if worker lines have filled the
  // queue.
  void line(Stream stream, std::string_view text);
  // Writes a JSON event with its '\n' to stdout. Space is reserved for it as well.
  void event(std::string_view text);
  // Writes a part of a line of `source`. The text is `more` if that line is open on the console, else `anew`, which includes
  // the prefix. `ends`: both texts end with a newline. Without it the line stays open until any other text arrives. Returns
  // false if the queue had no room. Then the line counts as dropped, and its rest must not be written.
  bool part(Stream stream, int source, std::string_view anew, std::string_view more, bool ends);

  // Replaces the progress bar; an empty text removes it. Has no effect without a terminal or while the terminal's queue is not
  // empty.
  void set_bar(std::string_view text);

  // The stream that shows the workers' lines of `stream`.
  Stream shown_on(Stream stream) const { return rules_.json ? Stream::kStdout : stream; }
  // Whether that stream drops no worker output. The reader of that output must then wait while the console is behind.
  bool shows_all(Stream stream) const;
  bool is_behind(Stream stream) const;  // more than half of the queue is used
  // Calls `act` once, when at most `bytes` are queued or the reader has closed its end. Calls it immediately if that is already
  // true.
  void when_at_most(Stream stream, std::size_t bytes, std::function<void()> act);

  std::uint64_t dropped_lines() const;  // total over both streams so far

  // The queues of streams that are regular files, whose file system may stall. stdout comes first.
  struct StreamFile {
    Stream stream{};
    FileQueue* queue = nullptr;  // never nullptr
  };
  std::vector<StreamFile> files() const;
  // Whether stdout and stderr are the same file or terminal.
  bool is_one_file() const { return stdout_ == stderr_; }

  static constexpr std::size_t kQueueBytes = 1u << 20;

 private:
  class Sink;
  Sink& sink(Stream stream) const { return stream == Stream::kStdout ? *stdout_ : *stderr_; }

  OutputRules rules_;
  std::shared_ptr<Sink> stdout_;
  std::shared_ptr<Sink> stderr_;  // the same object as stdout_ if both are one pipe or terminal, which keeps the order
};

}  // namespace ddprun
