// Shows one output stream of one worker on the console. worker_output.cpp has one object for each stream.
//
// Several workers share the console, so a line should be shown only when it is complete. But a prompt, such as "password: ",
// never ends its line, and a progress bar only rewrites its line with '\r'. So if a line is still unfinished after 100 ms, its
// first part is shown. worker_output.cpp owns the timer for this and gets the time from due(). When the rest arrives, it is
// added to the first part if that is still the last text on the console. If other output has followed, the rest is shown on a
// new line with the prefix.
//
// The object also stores the last lines of stderr and the last Python exception, as evidence for a failure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/events/stream.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/last_exception.hpp"
#include "launcher/output/last_lines.hpp"
#include "launcher/output/line_splitter.hpp"
#include "launcher/output/worker_output.hpp"
#include "launcher/output/worker_output_route.hpp"

namespace ddprun {

class ConsoleStream {
 public:
  using Clock = std::chrono::steady_clock;

  // `worker` is the worker's local index. `console` and `settings` must outlive this object.
  ConsoleStream(ConsoleWriter& console, const WorkerOutputSettings& settings, int worker, Stream stream);

  void set_ranks(const std::vector<RankAssignment>& ranks);
  void clear();  // call this when a new worker starts on this stream
  // Takes the next bytes of the stream. Returns true if they leave an unfinished line, for which the caller needs a timer.
  bool take(std::string_view text);
  void end();  // call this at the end of the stream; shows an unfinished line

  // Returns the time at which the unfinished line must be shown. Returns nullopt if no line is unfinished.
  std::optional<Clock::time_point> due() const;
  void postpone() { waiting_since_ = Clock::now(); }  // restarts the 100 ms wait for the rest of an unfinished line
  void show_unfinished();

  const OutputRoute& route() const { return route_; }
  const RankAssignment& ranks() const { return ranks_; }
  const std::string& prefix() const { return prefix_; }  // without colour
  bool on_terminal() const;
  // Returns true if the console must show the whole stream. If the console is slow, the agent then stops reading the stream.
  bool is_awaited() const;
  std::vector<std::string> last_lines() const { return tail_.lines(splitter_.rest()); }
  std::string last_exception() const { return exception_.text(); }

 private:
  bool prefixed() const { return route_.shown == OutputRoute::Shown::kPrefixed; }
  std::string shown_prefix() const;
  bool is_shown() const;
  bool passes() const;
  void pass(std::string_view bytes);
  void remember(std::string_view line);
  void show_lines(std::string_view text);
  bool show_part(std::string_view text, bool ends);

  ConsoleWriter& console_;
  const WorkerOutputSettings& settings_;
  const int worker_;
  const Stream stream_;
  const OutputRoute route_;
  RankAssignment ranks_;  // ranks of the worker in the current round
  std::string prefix_;
  LineSplitter splitter_;
  // The state of the first part of the current line. kNone: it was not shown yet, and the rest of the line is awaited. kShown:
  // the console shows it. kLost: it was dropped, because the console's queue was full.
  enum class Head { kNone, kShown, kLost } head_ = Head::kNone;
  Clock::time_point waiting_since_;
  LastLines tail_;           // used only for stderr
  LastException exception_;  // used only for the stderr of a script
};

}  // namespace ddprun
