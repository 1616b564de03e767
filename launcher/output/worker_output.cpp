// Implementation of worker_output.hpp. Output bytes have up to four destinations: the log file, the console, the filtered copy
// (worker_logs.hpp), and the last lines of stderr that are kept as evidence. The log file receives the bytes unchanged. The
// other destinations receive lines.
#include "launcher/output/worker_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "launcher/output/console_stream.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/last_exception.hpp"
#include "launcher/output/last_lines.hpp"
#include "launcher/output/line_splitter.hpp"
#include "launcher/output/worker_logs.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

}  // namespace

struct WorkerOutput::Impl {
  struct Source {
    int worker = 0;  // local index of the worker
    Stream stream = Stream::kStdout;
    ConsoleStream lines;
    fs::path folder{};
    LineSplitter copied{};   // splits the stream into lines for the filtered copy
    bool made = false;       // true after the directory was created and the log file was opened in this round
    bool by_itself = false;  // the worker writes directly to its log file
  };

  Impl(boost::asio::io_context& io, FileQueue& queue, ConsoleWriter& writer, WorkerOutputSettings chosen)
      : timer(io),
        files(queue),
        console(writer),
        settings(std::move(chosen)),
        logs(queue, static_cast<std::size_t>(2 * settings.workers),
             [this](const fs::path& file, int error) { report_file_error(file, error); }) {
    for (int worker = 0; worker < settings.workers; ++worker) {
      for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
        sources.push_back({worker, stream, ConsoleStream(console, settings, worker, stream)});
      }
    }
  }

  static std::size_t index(int worker, Stream stream) {
    return 2 * static_cast<std::size_t>(worker) + (stream == Stream::kStderr ? 1 : 0);
  }
  Source& source(int worker, Stream stream) { return sources.at(index(worker, stream)); }

  // ---- files ----

  // Resets the source for a worker that is about to start. `folder` is the round's directory, or empty if no log files are
  // written.
  void renew(Source& s, const OutputRound& starting, const fs::path& folder) const {
    s.lines.set_ranks(starting.ranks);
    s.lines.clear();
    const RankAssignment& ranks = s.lines.ranks();
    s.folder = folder.empty() ? fs::path() : worker_folder(folder, settings.layout, ranks.rank, ranks.local_rank);
    s.copied = {};
    s.made = s.by_itself = false;
  }

  void close_logs() {
    for (std::size_t i = 0; i < sources.size(); ++i) logs.close(i);
    logs.close_copies();
  }

  void report_file_error(const fs::path& file, int error) {
    if (error_reported) return;
    error_reported = true;
    console.line(Stream::kStderr, "ddprun: the logs are incomplete from here on: " + file.string() + ": " +
                                      std::strerror(error) + ". The job continues.");
  }

  // Creates the round's directory and opens log files. If the file queue has its own thread, that thread opens the logs of all
  // workers now. Otherwise (is_inline()) begin_worker() opens the logs of each worker just before the worker starts. At that
  // time the guardian is starting the previous worker, so no time is lost.
  void open_logs() {
    logs.make_round(round);
    for (int worker = 0; worker < settings.workers && !logs.is_inline(); ++worker) open_logs_of(worker);
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
      if (s.lines.route().file) logs.open(index(worker, stream), folder / log_name(stream));
    }
  }

  void copy_filtered(Source& s, std::string_view data) {
    const auto copy = [&](std::string_view lines) { logs.copy(index(s.worker, s.stream), s.stream, lines, s.lines.prefix()); };
    s.copied.feed(data, copy);
    if (s.copied.too_long()) copy(s.copied.take_rest() + "\n");
  }

  // ---- unfinished lines ----

  void arm(Clock::time_point when) {
    armed = true;
    timer.expires_at(when);
    timer.async_wait([this, token = std::weak_ptr<bool>(alive)](const boost::system::error_code& error) {
      if (error || token.expired()) return;  // `this` was destroyed if the token has expired
      armed = false;
      flush_overdue();
    });
  }

  // Cancels a timer that is no longer needed, because it would keep the io_context running.
  void disarm_when_idle() {
    if (!armed) return;
    if (std::ranges::any_of(sources, [](const Source& s) { return s.lines.due().has_value(); })) return;
    timer.cancel();
    armed = false;
  }

  void flush_overdue() {
    const auto now = Clock::now();
    auto next = Clock::time_point::max();
    for (Source& s : sources) {
      const auto due = s.lines.due();
      if (!due || console.rules().json) continue;
      if (*due > now) {
        next = std::min(next, *due);
      } else if (unread && unread(s.worker, s.stream)) {
        s.lines.postpone();
      } else {
        s.lines.show_unfinished();
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
  bool error_reported = false;
  // True if this round writes to the directory of the previous round. This happens in torchrun's layout after nodes joined or
  // left.
  bool repeated = false;
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

void WorkerOutput::begin_replacement(int worker, const OutputRound& round) {
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

void WorkerOutput::set_ranks(const std::vector<RankAssignment>& ranks) {
  for (Impl::Source& s : impl_->sources) s.lines.set_ranks(ranks);
}

void WorkerOutput::begin_worker(int worker) {
  if (impl_->settings.log_root.empty()) return;
  if (!impl_->source(worker, Stream::kStdout).made) impl_->open_logs_of(worker);
  impl_->logs.settle();
}

// Returns a file only if the agent does not need the stream's bytes. A stderr without a log file always gets a pipe, since the
// agent keeps its last lines as evidence.
int WorkerOutput::take_descriptor(int worker, Stream stream) {
  Impl::Source& s = impl_->source(worker, stream);
  if (s.lines.route().shown != OutputRoute::Shown::kNo) return -1;
  if (s.lines.route().file) {
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
  if (s.lines.route().filtered) impl_->copy_filtered(s, text);
  if (s.lines.take(text) && !impl_->armed) impl_->arm(*s.lines.due());
}

void WorkerOutput::end_of_stream(int worker, Stream stream) {
  Impl::Source& s = impl_->source(worker, stream);
  if (!s.copied.rest().empty()) impl_->copy_filtered(s, "\n");
  s.lines.end();
  impl_->logs.close(Impl::index(worker, stream));
  impl_->disarm_when_idle();
}

std::optional<winsize> WorkerOutput::terminal_size(int worker, Stream stream) const {
  const Impl::Source& s = impl_->source(worker, stream);
  return s.lines.on_terminal() ? std::optional(impl_->console.size(stream)) : std::nullopt;
}

bool WorkerOutput::is_awaited(int worker, Stream stream) const {
  return impl_->source(worker, stream).lines.is_awaited();
}

bool WorkerOutput::any_is_awaited() const {
  return std::ranges::any_of(impl_->sources, [](const Impl::Source& s) { return s.lines.is_awaited(); });
}

std::vector<std::string> WorkerOutput::stderr_tail(int worker) const {
  const Impl::Source& s = impl_->source(worker, Stream::kStderr);
  if (!s.by_itself) return s.lines.last_lines();
  return impl_->files.query([file = stderr_log(worker)] { return last_lines_of(file); }).value_or(std::vector<std::string>());
}

std::string WorkerOutput::last_exception(int worker) const {
  const Impl::Source& s = impl_->source(worker, Stream::kStderr);
  if (!s.by_itself) return s.lines.last_exception();
  return impl_->files.query([file = stderr_log(worker)] { return last_exception_of(file); }).value_or("");
}

std::int64_t WorkerOutput::stderr_lines(int worker) const {
  return impl_->files.query([file = stderr_log(worker)] { return line_count(file); }).value_or(0);
}

std::optional<std::uintmax_t> WorkerOutput::direct_file_bytes() const {
  std::vector<fs::path> files;
  for (const Impl::Source& s : impl_->sources) {
    if (s.by_itself) files.push_back(s.folder / log_name(s.stream));
  }
  if (files.empty()) return 0;
  return impl_->files.query([files] {
    std::uintmax_t bytes = 0;
    for (const fs::path& file : files) {
      std::error_code error;
      const std::uintmax_t size = fs::file_size(file, error);
      if (!error) bytes += size;
    }
    return bytes;
  });
}

bool WorkerOutput::has_space(int worker, Stream stream) const {
  return impl_->logs.has_space(Impl::index(worker, stream));
}

void WorkerOutput::when_space(int worker, Stream stream, std::function<void()> act) {
  impl_->logs.when_space(Impl::index(worker, stream), std::move(act));
}

int WorkerOutput::rank_of(int worker) const {
  return impl_->source(worker, Stream::kStdout).lines.ranks().rank;
}

fs::path WorkerOutput::log_of(int worker, Stream stream) const {
  const Impl::Source& s = impl_->source(worker, stream);
  return s.folder.empty() || !s.lines.route().file ? fs::path() : s.folder / log_name(stream);
}

fs::path WorkerOutput::stderr_log(int worker) const {
  return log_of(worker, Stream::kStderr);
}

fs::path WorkerOutput::error_file(int worker) const {
  const Impl::Source& s = impl_->source(worker, Stream::kStderr);
  return s.folder.empty() ? fs::path() : s.folder / "error.json";
}

}  // namespace ddprun
