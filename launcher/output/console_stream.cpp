// Implementation of console_stream.hpp. Normally, bytes are split into lines, which are shown with their prefix. If a single
// worker writes to a terminal, bytes are shown immediately and are not split (passes()).
#include "launcher/output/console_stream.hpp"

#include <array>
#include <cstddef>

#include "common/system/host_name.hpp"
#include "launcher/events/event_json.hpp"

namespace ddprun {
namespace {

using Shown = OutputRoute::Shown;

constexpr auto kUnfinishedTimeout = std::chrono::milliseconds(100);
constexpr std::array<int, 6> kColours{36, 32, 35, 33, 34, 96};

}  // namespace

ConsoleStream::ConsoleStream(ConsoleWriter& console, const WorkerOutputSettings& settings, int worker, Stream stream)
    : console_(console),
      settings_(settings),
      worker_(worker),
      stream_(stream),
      route_(settings.script ? route_of(*settings.script, settings.kept, worker, stream)
                             : OutputRoute{.shown = Shown::kPrefixed, .file = true}) {}

void ConsoleStream::set_ranks(const std::vector<RankAssignment>& ranks) {
  const auto place = static_cast<std::size_t>(worker_);
  ranks_ = place < ranks.size() ? ranks[place] : RankAssignment{.rank = worker_, .local_rank = worker_};
  prefix_ = settings_.script ? line_prefix(settings_.script->prefix_template, ranks_, host_name())
                             : "[rank " + std::to_string(ranks_.rank) + "] ";
}

void ConsoleStream::clear() {
  splitter_ = {};
  head_ = Head::kNone;
  tail_.clear();
  exception_.clear();
}

bool ConsoleStream::take(std::string_view text) {
  if (passes()) {
    pass(text);
    if (stream_ == Stream::kStdout) return false;
    splitter_.feed(text, [&](std::string_view lines) { for_each_line(lines, [&](std::string_view line) { remember(line); }); });
    if (splitter_.too_long()) tail_.add_part(splitter_.take_rest());
    return false;
  }
  const bool had_rest = !splitter_.rest().empty() && text.find('\n') == std::string_view::npos;
  splitter_.feed(text, [&](std::string_view lines) { show_lines(lines); });
  if (splitter_.too_long()) show_unfinished();
  if (splitter_.rest().empty()) return false;
  if (!had_rest) waiting_since_ = Clock::now();
  return true;
}

std::optional<ConsoleStream::Clock::time_point> ConsoleStream::due() const {
  return splitter_.rest().empty() ? std::nullopt : std::optional(waiting_since_ + kUnfinishedTimeout);
}

void ConsoleStream::end() {
  if (splitter_.rest().empty() && head_ == Head::kNone) return;
  const std::string rest = splitter_.take_rest();
  // Without the newline, the next line of another worker would continue this line.
  if (prefixed() || console_.rules().json) return show_lines(rest + "\n");
  // The console shows raw output without changes, so no newline is added at the end.
  if (stream_ == Stream::kStderr) tail_.add_part(rest);
  const bool shown_before = passes() || !is_shown() || head_ == Head::kLost;
  if (!rest.empty() && !shown_before) show_part(rest, false);
  head_ = Head::kNone;
}

std::string ConsoleStream::shown_prefix() const {
  if (!prefixed()) return {};
  if (!console_.colours(stream_)) return prefix_;
  const std::string colour = std::to_string(kColours[static_cast<std::size_t>(ranks_.rank) % kColours.size()]);
  return "\x1b[" + colour + "m" + prefix_ + "\x1b[0m";
}

bool ConsoleStream::is_shown() const {
  return route_.shown != Shown::kNo && (stream_ == Stream::kStderr || console_.rules().show_stdout);
}

bool ConsoleStream::on_terminal() const {
  return settings_.script && settings_.script->terminals && route_.shown == Shown::kRaw && !route_.file && is_shown() &&
         !console_.rules().json && console_.is_terminal(stream_);
}

// Returns true if bytes are shown immediately, so that the user sees each character that a prompt echoes. This requires a
// single worker and a terminal. With several workers, parts of different lines would mix.
bool ConsoleStream::passes() const {
  return settings_.workers == 1 && on_terminal();
}

void ConsoleStream::pass(std::string_view bytes) {
  constexpr int kBothStreams = 0;
  console_.part(stream_, kBothStreams, bytes, bytes, bytes.ends_with('\n'));
}

bool ConsoleStream::is_awaited() const {
  return is_shown() && (!route_.file || console_.shows_all(console_.shown_on(stream_)));
}

void ConsoleStream::remember(std::string_view line) {
  tail_.add(line);
  if (settings_.script) exception_.add(line);
}

// Shows complete lines. Each has its '\n' at the end.
void ConsoleStream::show_lines(std::string_view text) {
  if (stream_ == Stream::kStderr) for_each_line(text, [&](std::string_view line) { remember(line); });
  if (!is_shown()) return;
  if (console_.rules().json) {
    std::string objects;
    for_each_line(text, [&](std::string_view line) { objects += output_json_line(ranks_.rank, stream_, line); });
    return console_.lines(Stream::kStdout, objects);
  }
  if (head_ != Head::kNone) {
    const std::size_t end = text.find('\n') + 1;
    if (head_ == Head::kShown) show_part(text.substr(0, end - 1), true);
    head_ = Head::kNone;
    text.remove_prefix(end);
  }
  if (text.empty()) return;
  if (!prefixed()) return console_.lines(stream_, text);
  const std::string before = shown_prefix();
  std::string lines;
  lines.reserve(text.size() + 16 * before.size());
  for_each_line(text, [&](std::string_view line) { lines.append(before).append(visible_part(line)).append("\n"); });
  console_.lines(stream_, lines);
}

// Shows a part of a line; `text` has no '\n'. `ends` is true if this part is the end of the line. Returns false if the
// console's queue is full and the part was dropped.
bool ConsoleStream::show_part(std::string_view text, bool ends) {
  const int source = 2 * worker_ + (stream_ == Stream::kStderr ? 1 : 0);
  const char* end = ends ? "\n" : "";
  if (!prefixed()) {
    const std::string raw = std::string(text) + end;
    return console_.part(stream_, source, raw, raw, ends);
  }
  const bool updates = text.find('\r') != std::string_view::npos;
  const std::string before = shown_prefix(), visible(visible_part(text));
  const std::string full_text = before + visible + end;
  const std::string more = updates ? "\r" + full_text : visible + end;
  return console_.part(stream_, source, full_text, more, ends);
}

// Shows the first part of a line while the rest has not arrived.
void ConsoleStream::show_unfinished() {
  // With --json each object contains a complete line, or the first part of a line that is too long.
  if (console_.rules().json && !splitter_.too_long()) return;
  const std::string text = splitter_.take_rest();
  if (text.empty()) return;
  if (stream_ == Stream::kStderr) tail_.add_part(text);
  if (!is_shown()) return;
  if (console_.rules().json) return console_.lines(Stream::kStdout, output_json_line(ranks_.rank, stream_, text));
  if (head_ == Head::kLost) return;
  head_ = show_part(text, false) ? Head::kShown : Head::kLost;
}

}  // namespace ddprun
