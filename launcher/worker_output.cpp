// See worker_output.hpp. Bytes take three ways: whole into the log file, as lines to the console, and stderr's last lines into
// memory.
#include "launcher/worker_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>

#include "launcher/console_writer.hpp"
#include "launcher/line_splitter.hpp"
#include "launcher/report_event.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kUnfinishedFor = std::chrono::milliseconds(100);
constexpr std::size_t kTailLines = 20;
constexpr std::size_t kTailLineBytes = 1024;
constexpr std::array<int, 6> kColours{36, 32, 35, 33, 34, 96};

std::string numbered(const char* format, int number) {
  char text[32];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

}  // namespace

struct WorkerOutput::Impl {
  struct Source {
    int rank = 0;
    Stream stream = Stream::kStdout;
    LineSplitter splitter;
    int log_fd = -1;
    // Where the head of the current line is, when it was taken before its end came.
    enum class Head { kNone, kShown, kLost } head = Head::kNone;
    Clock::time_point waiting_since;
    std::deque<std::string> tail;  // stderr only
    std::string tail_head;         // of a line whose head was taken from the splitter

    int id() const { return 2 * rank + (stream == Stream::kStderr ? 1 : 0); }
  };

  Impl(boost::asio::io_context& io, ConsoleWriter& writer, fs::path root, int world_size)
      : timer(io), console(writer), log_root(std::move(root)), sources(static_cast<std::size_t>(2 * world_size)) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      sources[i].rank = static_cast<int>(i / 2);
      sources[i].stream = i % 2 == 0 ? Stream::kStdout : Stream::kStderr;
    }
  }

  ~Impl() { close_logs(); }

  Source& source(int rank, Stream stream) {
    return sources.at(static_cast<std::size_t>(2 * rank + (stream == Stream::kStderr ? 1 : 0)));
  }

  fs::path folder(int rank) const {
    return log_root.empty() ? fs::path() : log_root / numbered("round-%03d", round) / numbered("rank-%05d", rank);
  }

  void close_logs() {
    for (Source& s : sources) {
      if (s.log_fd >= 0) ::close(s.log_fd);
      s.log_fd = -1;
    }
  }

  void complain(const fs::path& file, const std::string& why) {
    if (complained) return;
    complained = true;
    console.line(Stream::kStderr,
                 "ddprun: the logs are incomplete from here on: " + file.string() + ": " + why + ". The job goes on.");
  }

  void open_logs() {
    if (log_root.empty()) return;
    for (Source& s : sources) {
      const fs::path parent = folder(s.rank);
      std::error_code error;
      fs::create_directories(parent, error);
      if (error) {
        complain(parent, error.message());
        return;
      }
      if (!console.rules().log_files) continue;
      const fs::path file = parent / (s.stream == Stream::kStdout ? "stdout.log" : "stderr.log");
      s.log_fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      if (s.log_fd < 0) complain(file, std::strerror(errno));
    }
  }

  void log(Source& s, std::string_view data) {
    if (s.log_fd < 0) return;
    while (!data.empty()) {
      const ssize_t count = ::write(s.log_fd, data.data(), data.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return complain(folder(s.rank), std::strerror(errno));
      data.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  std::string prefix(const Source& s) const {
    if (!console.rules().rank_prefix) return {};
    const std::string text = "[rank " + std::to_string(s.rank) + "] ";
    if (!console.colours(s.stream)) return text;
    return "\x1b[" + std::to_string(kColours[static_cast<std::size_t>(s.rank) % kColours.size()]) + "m" + text + "\x1b[0m";
  }

  bool shown(const Source& s) const { return s.stream == Stream::kStderr || console.rules().show_stdout; }

  void add_to_tail(Source& s, std::string_view line) {
    std::string whole = std::move(s.tail_head);
    s.tail_head.clear();
    whole += line.substr(0, kTailLineBytes);
    if (whole.size() > kTailLineBytes) whole.resize(kTailLineBytes);
    s.tail.emplace_back(visible_part(whole));
    if (s.tail.size() > kTailLines) s.tail.pop_front();
  }

  // Whole lines, each with its '\n'.
  void whole_lines(Source& s, std::string_view text) {
    if (s.stream == Stream::kStderr) {
      for_each_line(text, [&](std::string_view line) { add_to_tail(s, line); });
    }
    if (!shown(s)) return;
    const OutputRules& rules = console.rules();
    if (rules.json) {
      std::string objects;
      for_each_line(text, [&](std::string_view line) { objects += output_json_line(s.rank, s.stream, line); });
      return console.lines(Stream::kStdout, objects);
    }
    if (s.head != Source::Head::kNone) {
      const std::size_t end = text.find('\n') + 1;
      if (s.head == Source::Head::kShown) show_part(s, text.substr(0, end - 1), true);
      s.head = Source::Head::kNone;
      text.remove_prefix(end);
    }
    if (text.empty()) return;
    if (!rules.rank_prefix) return console.lines(s.stream, text);
    const std::string before = prefix(s);
    std::string prefixed;
    prefixed.reserve(text.size() + 16 * before.size());
    for_each_line(text, [&](std::string_view line) { prefixed.append(before).append(visible_part(line)).append("\n"); });
    console.lines(s.stream, prefixed);
  }

  // A piece of a line that is shown before its end is known, or the end of one (`ends`); without '\n'.
  bool show_part(Source& s, std::string_view text, bool ends) {
    const char* end = ends ? "\n" : "";
    if (!console.rules().rank_prefix) {
      const std::string raw = std::string(text) + end;
      return console.part(s.stream, s.id(), raw, raw, ends);
    }
    const bool updates = text.find('\r') != std::string_view::npos;
    const std::string before = prefix(s), visible(visible_part(text));
    const std::string anew = before + visible + end;
    const std::string more = updates ? "\r" + anew : visible + end;
    return console.part(s.stream, s.id(), anew, more, ends);
  }

  // The head of a line goes out although its end has not come.
  void take_unfinished(Source& s) {
    if (console.rules().json && !s.splitter.too_long()) return;  // JSON has whole lines only
    const std::string text = s.splitter.take_rest();
    if (text.empty()) return;
    if (s.stream == Stream::kStderr && s.tail_head.size() < kTailLineBytes) s.tail_head += text.substr(0, kTailLineBytes);
    if (!shown(s)) return;
    if (console.rules().json) return console.lines(Stream::kStdout, output_json_line(s.rank, s.stream, text));
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
      if (error || token.expired()) return;  // `this` may be gone
      armed = false;
      flush_overdue();
    });
  }

  // A timer that nobody needs must not keep the io_context at work.
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
        if (unread && unread(s.rank, s.stream)) {
          s.waiting_since = now;  // bytes() comes back to it
        } else {
          take_unfinished(s);
        }
      } else {
        next = std::min(next, due);
      }
    }
    if (next != Clock::time_point::max()) arm(next);
  }

  template <class Do>
  static void for_each_line(std::string_view text, Do act) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      act(text.substr(0, end));
      if (end == std::string_view::npos) return;
      text.remove_prefix(end + 1);
    }
  }

  boost::asio::steady_timer timer;
  ConsoleWriter& console;
  fs::path log_root;
  std::function<bool(int, Stream)> unread;
  std::vector<Source> sources;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  int round = 0;
  bool armed = false;
  bool complained = false;
};

WorkerOutput::WorkerOutput(boost::asio::io_context& io, ConsoleWriter& console, fs::path log_root, int world_size)
    : impl_(std::make_unique<Impl>(io, console, std::move(log_root), world_size)) {}

WorkerOutput::~WorkerOutput() = default;

void WorkerOutput::set_unread(std::function<bool(int rank, Stream stream)> unread) {
  impl_->unread = std::move(unread);
}

void WorkerOutput::begin_round(int round) {
  impl_->close_logs();
  impl_->round = round;
  for (Impl::Source& s : impl_->sources) {
    s.splitter = {};
    s.head = Impl::Source::Head::kNone;
    s.tail.clear();
    s.tail_head.clear();
  }
  impl_->open_logs();
}

void WorkerOutput::bytes(int rank, Stream stream, std::span<const char> data) {
  if (data.empty()) return;
  Impl::Source& s = impl_->source(rank, stream);
  const std::string_view text(data.data(), data.size());
  impl_->log(s, text);
  const bool had_rest = !s.splitter.rest().empty() && text.find('\n') == std::string_view::npos;
  s.splitter.feed(text, [&](std::string_view lines) { impl_->whole_lines(s, lines); });
  impl_->await_rest(s, had_rest);
}

void WorkerOutput::end_of_stream(int rank, Stream stream) {
  Impl::Source& s = impl_->source(rank, stream);
  if (!s.splitter.rest().empty() || s.head != Impl::Source::Head::kNone) {
    const std::string rest = s.splitter.take_rest();
    if (impl_->console.rules().rank_prefix || impl_->console.rules().json) {
      impl_->whole_lines(s, rest + "\n");  // the next line of somebody else must not be glued to it
    } else {
      // Raw output stays raw: no newline is invented at its end.
      if (s.stream == Stream::kStderr && !rest.empty()) s.tail_head += rest.substr(0, kTailLineBytes);
      if (!rest.empty() && s.head != Impl::Source::Head::kLost) impl_->show_part(s, rest, false);
      s.head = Impl::Source::Head::kNone;
    }
  }
  if (s.log_fd >= 0) ::close(s.log_fd);
  s.log_fd = -1;
  impl_->disarm_when_idle();
}

std::vector<std::string> WorkerOutput::stderr_tail(int rank) const {
  const Impl::Source& s = impl_->source(rank, Stream::kStderr);
  std::vector<std::string> lines(s.tail.begin(), s.tail.end());
  std::string unfinished = s.tail_head + std::string(s.splitter.rest().substr(0, kTailLineBytes));
  if (unfinished.size() > kTailLineBytes) unfinished.resize(kTailLineBytes);
  if (!unfinished.empty()) {
    lines.emplace_back(visible_part(unfinished));
    if (lines.size() > kTailLines) lines.erase(lines.begin());
  }
  return lines;
}

fs::path WorkerOutput::stderr_log(int rank) const {
  const fs::path parent = rank_folder(rank);
  return parent.empty() || !impl_->console.rules().log_files ? fs::path() : parent / "stderr.log";
}

fs::path WorkerOutput::rank_folder(int rank) const {
  return impl_->folder(rank);
}

}  // namespace ddprun
