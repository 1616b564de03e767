// See worker_output.hpp. Output bytes have up to four destinations: the log file (unchanged), the console (as lines), the
// filtered copy of teed lines (worker_logs.hpp), and memory for the last lines of stderr.
#include "launcher/output/worker_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "common/system/host_name.hpp"
#include "launcher/events/event_json.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/last_exception.hpp"
#include "launcher/output/last_lines.hpp"
#include "launcher/output/line_splitter.hpp"
#include "launcher/output/worker_logs.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Shown = OutputRoute::Shown;

constexpr auto kUnfinishedFor = std::chrono::milliseconds(100);
constexpr std::array<int, 6> kColours{36, 32, 35, 33, 34, 96};

template <class Do>
void for_each_line(std::string_view text, Do act) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    act(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

struct WorkerOutput::Impl {
  struct Source {
    int worker = 0;  // index on this node
    Stream stream = Stream::kStdout;
    OutputRoute route;
    // Rank and local rank in the current round.
    RankAssignment who;
    std::string prefix;  // without colour
    fs::path folder;
    LineSplitter splitter;
    LineSplitter copied;     // lines for the filtered copy
    bool made = false;       // begin_round() has made its folder and files
    bool by_itself = false;  // the worker writes directly to its file
    // State of the current line's beginning, if it was shown before the line's end arrived.
    enum class Head { kNone, kShown, kLost } head = Head::kNone;
    Clock::time_point waiting_since;
    LastLines tail;           // stderr only
    LastException exception;  // stderr of a script only

    int id() const { return 2 * worker + (stream == Stream::kStderr ? 1 : 0); }
    bool prefixed() const { return route.shown == Shown::kPrefixed; }
  };

  Impl(boost::asio::io_context& io, FileQueue& queue, ConsoleWriter& writer, WorkerOutputSettings chosen)
      : timer(io),
        files(queue),
        console(writer),
        settings(std::move(chosen)),
        sources(static_cast<std::size_t>(2 * settings.workers)),
        logs(queue, sources.size(), [this](const fs::path& file, int error) { complain(file, error); }) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      Source& s = sources[i];
      s.worker = static_cast<int>(i / 2);
      s.stream = i % 2 == 0 ? Stream::kStdout : Stream::kStderr;
      s.route = settings.script ? route_of(*settings.script, settings.kept, s.worker, s.stream)
                                : OutputRoute{.shown = Shown::kPrefixed, .file = true};
    }
  }

  static std::size_t index(int worker, Stream stream) {
    return 2 * static_cast<std::size_t>(worker) + (stream == Stream::kStderr ? 1 : 0);
  }
  Source& source(int worker, Stream stream) { return sources.at(index(worker, stream)); }

  // ---- files ----

  void name(Source& s, const std::vector<RankAssignment>& ranks) const {
    const auto place = static_cast<std::size_t>(s.worker);
    s.who = place < ranks.size() ? ranks[place] : RankAssignment{.rank = s.worker, .local_rank = s.worker};
    s.prefix = settings.script ? line_prefix(settings.script->prefix_template, s.who, host_name())
                               : "[rank " + std::to_string(s.who.rank) + "] ";
  }

  // Resets the source for a worker that is about to start. `folder` is the round's folder; empty if there are no files.
  void renew(Source& s, const OutputRound& starting, const fs::path& folder) const {
    name(s, starting.ranks);
    s.folder = folder.empty() ? fs::path() : worker_folder(folder, settings.layout, s.who.rank, s.who.local_rank);
    s.splitter = {};
    s.copied = {};
    s.made = s.by_itself = false;
    s.head = Source::Head::kNone;
    s.tail.clear();
    s.exception.clear();
  }

  void close_logs() {
    for (std::size_t i = 0; i < sources.size(); ++i) logs.close(i);
    logs.close_copies();
  }

  void complain(const fs::path& file, int error) {
    if (complained) return;
    complained = true;
    console.line(Stream::kStderr, "ddprun: the logs are incomplete from here on: " + file.string() + ": " +
                                      std::strerror(error) + ". The job goes on.");
  }

  // Opens the logs of all workers of a round together, since they start together. If no other thread does the work
  // (is_at_once()), each worker's logs are opened just before it starts. Meanwhile the guardian starts the previous worker.
  void open_logs() {
    logs.make_round(round);
    for (int worker = 0; worker < settings.workers && !logs.is_at_once(); ++worker) open_logs_of(worker);
    if (!settings.script || settings.kept == KeptFiles::kNone) return;
    const auto open_copy = [&](Stream stream, const char* name, const std::vector<std::string>& filters) {
      if (!filters.empty()) logs.open_copy(stream, round / name, filters);
    };
    open_copy(Stream::kStdout, "filtered_stdout.log", settings.script->stdout_filters);
    open_copy(Stream::kStderr, "filtered_stderr.log", settings.script->stderr_filters);
  }

  void open_logs_of(int worker) {
    if (settings.log_root.empty()) return;
    const fs::path& folder = source(worker, Stream::kStdout).folder;
    logs.make_worker(folder, repeated ? WorkerLogs::ErrorFiles::kStale : WorkerLogs::ErrorFiles::kNone);
    for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
      Source& s = source(worker, stream);
      s.made = true;
      if (s.route.file) logs.open(index(worker, stream), folder / log_name(stream));
    }
  }

  void copy_filtered(Source& s, std::string_view data) {
    const auto copy = [&](std::string_view lines) { logs.copy(index(s.worker, s.stream), s.stream, lines, s.prefix); };
    s.copied.feed(data, copy);
    if (s.copied.too_long()) copy(s.copied.take_rest() + "\n");
  }

  // ---- the console ----

  std::string shown_prefix(const Source& s) const {
    if (!s.prefixed()) return {};
    if (!console.colours(s.stream)) return s.prefix;
    const std::string colour = std::to_string(kColours[static_cast<std::size_t>(s.who.rank) % kColours.size()]);
    return "\x1b[" + colour + "m" + s.prefix + "\x1b[0m";
  }

  bool shown(const Source& s) const {
    return s.route.shown != Shown::kNo && (s.stream == Stream::kStderr || console.rules().show_stdout);
  }

  bool on_terminal(const Source& s) const {
    return settings.script && settings.script->terminals && s.route.shown == Shown::kRaw && !s.route.file && shown(s) &&
           !console.rules().json && console.is_terminal(s.stream);
  }

  // Whether bytes are passed on unsplit. A single worker on a terminal allows it, since no other worker's line can be torn. The
  // user then sees characters typed at a prompt immediately.
  bool passes(const Source& s) const { return settings.workers == 1 && on_terminal(s); }

  void pass(const Source& s, std::string_view bytes) {
    constexpr int kBothStreams = 0;
    console.part(s.stream, kBothStreams, bytes, bytes, bytes.ends_with('\n'));
  }

  bool awaited(const Source& s) const { return shown(s) && (!s.route.file || console.shows_all(console.shown_on(s.stream))); }

  void remember(Source& s, std::string_view line) const {
    s.tail.add(line);
    if (settings.script) s.exception.add(line);
  }

  // Handles complete lines, each with its '\n'.
  void whole_lines(Source& s, std::string_view text) {
    if (s.stream == Stream::kStderr) for_each_line(text, [&](std::string_view line) { remember(s, line); });
    if (!shown(s)) return;
    if (console.rules().json) {
      std::string objects;
      for_each_line(text, [&](std::string_view line) { objects += output_json_line(s.who.rank, s.stream, line); });
      return console.lines(Stream::kStdout, objects);
    }
    if (s.head != Source::Head::kNone) {
      const std::size_t end = text.find('\n') + 1;
      if (s.head == Source::Head::kShown) show_part(s, text.substr(0, end - 1), true);
      s.head = Source::Head::kNone;
      text.remove_prefix(end);
    }
    if (text.empty()) return;
    if (!s.prefixed()) return console.lines(s.stream, text);
    const std::string before = shown_prefix(s);
    std::string prefixed;
    prefixed.reserve(text.size() + 16 * before.size());
    for_each_line(text, [&](std::string_view line) { prefixed.append(before).append(visible_part(line)).append("\n"); });
    console.lines(s.stream, prefixed);
  }

  // Shows a piece of a line whose end has not arrived, or the last piece (`ends`); without '\n'.
  bool show_part(Source& s, std::string_view text, bool ends) {
    const char* end = ends ? "\n" : "";
    if (!s.prefixed()) {
      const std::string raw = std::string(text) + end;
      return console.part(s.stream, s.id(), raw, raw, ends);
    }
    const bool updates = text.find('\r') != std::string_view::npos;
    const std::string before = shown_prefix(s), visible(visible_part(text));
    const std::string anew = before + visible + end;
    const std::string more = updates ? "\r" + anew : visible + end;
    return console.part(s.stream, s.id(), anew, more, ends);
  }

  // ---- unfinished lines ----

  // Shows the beginning of a line before its end has arrived.
  void take_unfinished(Source& s) {
    if (console.rules().json && !s.splitter.too_long()) return;  // JSON output contains complete lines only
    const std::string text = s.splitter.take_rest();
    if (text.empty()) return;
    if (s.stream == Stream::kStderr) s.tail.add_part(text);
    if (!shown(s)) return;
    if (console.rules().json) return console.lines(Stream::kStdout, output_json_line(s.who.rank, s.stream, text));
    if (s.head == Source::Head::kLost) return;
    s.head = show_part(s, text, false) ? Source::Head::kShown : Source::Head::kLost;
  }

  void await_rest(Source& s, bool had_rest) {
    if (s.splitter.rest().empty()) return;
    if (s.splitter.too_long()) return take_unfinished(s);
    if (!had_rest) s.waiting_since = Clock::now();
    if (!armed) arm(s.waiting_since + kUnfinishedFor);
  }

  void arm(Clock::time_point when) {
    armed = true;
    timer.expires_at(when);
    timer.async_wait([this, token = std::weak_ptr<bool>(alive)](const boost::system::error_code& error) {
      if (error || token.expired()) return;  // `this` may be destroyed
      armed = false;
      flush_overdue();
    });
  }

  // Cancels an unused timer: it would keep the io_context running.
  void disarm_when_idle() {
    if (!armed) return;
    for (const Source& s : sources) {
      if (!s.splitter.rest().empty()) return;
    }
    timer.cancel();
    armed = false;
  }

  void flush_overdue() {
    const auto now = Clock::now();
    auto next = Clock::time_point::max();
    for (Source& s : sources) {
      if (s.splitter.rest().empty() || console.rules().json) continue;
      const auto due = s.waiting_since + kUnfinishedFor;
      if (due <= now) {
        if (unread && unread(s.worker, s.stream)) {
          s.waiting_since = now;  // bytes() sets it again
        } else {
          take_unfinished(s);
        }
      } else {
        next = std::min(next, due);
      }
    }
    if (next != Clock::time_point::max()) arm(next);
  }

  boost::asio::steady_timer timer;
  FileQueue& files;
  ConsoleWriter& console;
  WorkerOutputSettings settings;
  std::function<bool(int, Stream)> unread;
  std::vector<Source> sources;
  fs::path round;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  bool armed = false;
  bool complained = false;
  bool repeated = false;  // the folder belongs to an earlier round: a change of members without a restart reuses it
  WorkerLogs logs;
};

WorkerOutput::WorkerOutput(boost::asio::io_context& io, FileQueue& files, ConsoleWriter& console, WorkerOutputSettings settings)
    : impl_(std::make_unique<Impl>(io, files, console, std::move(settings))) {}

WorkerOutput::~WorkerOutput() = default;

void WorkerOutput::set_unread(std::function<bool(int worker, Stream stream)> unread) {
  impl_->unread = std::move(unread);
}

void WorkerOutput::begin_round(const OutputRound& round) {
  impl_->close_logs();
  const WorkerOutputSettings& settings = impl_->settings;
  const bool files = !settings.log_root.empty();
  const fs::path folder =
      files ? round_folder(settings.log_root, settings.layout, round.round, round.restart_count) : fs::path();
  impl_->repeated = files && folder == impl_->round;
  impl_->round = folder;
  for (Impl::Source& s : impl_->sources) impl_->renew(s, round, folder);
  if (files) impl_->open_logs();
}

void WorkerOutput::begin_successor(int worker, const OutputRound& round) {
  const WorkerOutputSettings& settings = impl_->settings;
  const fs::path folder = settings.log_root.empty()
                              ? fs::path()
                              : round_folder(settings.log_root, settings.layout, round.round, round.restart_count);
  if (!folder.empty()) impl_->logs.make_round(folder);
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    impl_->logs.close(Impl::index(worker, stream));
    impl_->renew(impl_->source(worker, stream), round, folder);
  }
}

void WorkerOutput::name_anew(const std::vector<RankAssignment>& ranks) {
  for (Impl::Source& s : impl_->sources) impl_->name(s, ranks);
}

void WorkerOutput::begin_worker(int worker) {
  if (impl_->settings.log_root.empty()) return;
  if (!impl_->source(worker, Stream::kStdout).made) impl_->open_logs_of(worker);
  impl_->logs.settle();
}

// Returns a file only if no other consumer needs the bytes. The tail of stderr is kept even if stderr is shown nowhere.
int WorkerOutput::take_descriptor(int worker, Stream stream) {
  Impl::Source& s = impl_->source(worker, stream);
  if (s.route.shown != Shown::kNo) return -1;
  if (s.route.file) {
    const int fd = impl_->logs.take(Impl::index(worker, stream));
    s.by_itself = fd >= 0;
    return fd;
  }
  return stream == Stream::kStdout ? ::open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
}

void WorkerOutput::bytes(int worker, Stream stream, std::span<const char> data) {
  if (data.empty()) return;
  Impl::Source& s = impl_->source(worker, stream);
  const std::string_view text(data.data(), data.size());
  impl_->logs.write(Impl::index(worker, stream), text);
  if (s.route.filtered) impl_->copy_filtered(s, text);
  if (impl_->passes(s)) {
    impl_->pass(s, text);
    if (stream == Stream::kStdout) return;
    s.splitter.feed(
        text, [&](std::string_view lines) { for_each_line(lines, [&](std::string_view line) { impl_->remember(s, line); }); });
    if (s.splitter.too_long()) s.tail.add_part(s.splitter.take_rest());
    return;
  }
  const bool had_rest = !s.splitter.rest().empty() && text.find('\n') == std::string_view::npos;
  s.splitter.feed(text, [&](std::string_view lines) { impl_->whole_lines(s, lines); });
  impl_->await_rest(s, had_rest);
}

void WorkerOutput::end_of_stream(int worker, Stream stream) {
  Impl::Source& s = impl_->source(worker, stream);
  if (!s.copied.rest().empty()) impl_->copy_filtered(s, "\n");
  if (!s.splitter.rest().empty() || s.head != Impl::Source::Head::kNone) {
    const std::string rest = s.splitter.take_rest();
    if (s.prefixed() || impl_->console.rules().json) {
      // A final newline is added, so that the next line of another worker does not continue this one.
      impl_->whole_lines(s, rest + "\n");
    } else {
      // Raw output stays raw: no newline is added at its end.
      if (s.stream == Stream::kStderr) s.tail.add_part(rest);
      const bool is_shown = impl_->passes(s) || !impl_->shown(s) || s.head == Impl::Source::Head::kLost;
      if (!rest.empty() && !is_shown) impl_->show_part(s, rest, false);
      s.head = Impl::Source::Head::kNone;
    }
  }
  impl_->logs.close(Impl::index(worker, stream));
  impl_->disarm_when_idle();
}

std::optional<winsize> WorkerOutput::terminal_size(int worker, Stream stream) const {
  const Impl::Source& s = impl_->source(worker, stream);
  return impl_->on_terminal(s) ? std::optional(impl_->console.size(stream)) : std::nullopt;
}

bool WorkerOutput::is_awaited(int worker, Stream stream) const {
  return impl_->awaited(impl_->source(worker, stream));
}

bool WorkerOutput::any_is_awaited() const {
  return std::any_of(impl_->sources.begin(), impl_->sources.end(), [this](const Impl::Source& s) { return impl_->awaited(s); });
}

std::vector<std::string> WorkerOutput::stderr_tail(int worker) const {
  const Impl::Source& s = impl_->source(worker, Stream::kStderr);
  if (!s.by_itself) return s.tail.lines(s.splitter.rest());
  return impl_->files.ask([file = stderr_log(worker)] { return last_lines_of(file); }).value_or(std::vector<std::string>());
}

std::string WorkerOutput::last_exception(int worker) const {
  const Impl::Source& s = impl_->source(worker, Stream::kStderr);
  if (!s.by_itself) return s.exception.text();
  return impl_->files.ask([file = stderr_log(worker)] { return last_exception_of(file); }).value_or("");
}

std::int64_t WorkerOutput::stderr_lines(int worker) const {
  return impl_->files.ask([file = stderr_log(worker)] { return line_count(file); }).value_or(0);
}

std::optional<std::uintmax_t> WorkerOutput::bytes_past_us() const {
  std::vector<fs::path> files;
  for (const Impl::Source& s : impl_->sources) {
    if (s.by_itself) files.push_back(s.folder / log_name(s.stream));
  }
  if (files.empty()) return 0;
  return impl_->files.ask([files] {
    std::uintmax_t bytes = 0;
    for (const fs::path& file : files) {
      std::error_code error;
      const std::uintmax_t size = fs::file_size(file, error);
      if (!error) bytes += size;
    }
    return bytes;
  });
}

bool WorkerOutput::has_room(int worker, Stream stream) const {
  return impl_->logs.has_room(Impl::index(worker, stream));
}

void WorkerOutput::when_room(int worker, Stream stream, std::function<void()> act) {
  impl_->logs.when_room(Impl::index(worker, stream), std::move(act));
}

int WorkerOutput::rank_of(int worker) const {
  return impl_->source(worker, Stream::kStdout).who.rank;
}

fs::path WorkerOutput::log_of(int worker, Stream stream) const {
  const Impl::Source& s = impl_->source(worker, stream);
  return s.folder.empty() || !s.route.file ? fs::path() : s.folder / log_name(stream);
}

fs::path WorkerOutput::stderr_log(int worker) const {
  return log_of(worker, Stream::kStderr);
}

fs::path WorkerOutput::error_file(int worker) const {
  const Impl::Source& s = impl_->source(worker, Stream::kStderr);
  return s.folder.empty() ? fs::path() : s.folder / "error.json";
}

}  // namespace ddprun
