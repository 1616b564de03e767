// Implementation of console_writer.hpp: two ConsoleSink objects, or one if both streams are the same file.
#include "launcher/output/console_writer.hpp"

#include <sys/ioctl.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "launcher/output/console_sink.hpp"

namespace ddprun {

using Origin = ConsoleSink::Origin;

ConsoleWriter::ConsoleWriter(boost::asio::io_context& io, int stdout_fd, int stderr_fd)
    : stdout_(std::make_shared<ConsoleSink>(io, stdout_fd)),
      stderr_(same_file(stdout_fd, stderr_fd) ? stdout_ : std::make_shared<ConsoleSink>(io, stderr_fd)) {
  if (stderr_ == stdout_) return;
  // This callback runs when the reader of stdout has closed the pipe, as in `ddprun train.py | head`. Under torchrun SIGPIPE
  // would kill the workers. Here the job continues, and a line on stderr reports that output is dropped.
  stdout_->when_reader_gone([errors = std::weak_ptr<ConsoleSink>(stderr_)] {
    const std::string closed_message = "ddprun: stdout is a closed pipe: output to it is dropped, and the job continues\n";
    if (const auto sink = errors.lock()) sink->append(closed_message, Origin::kOurs);
  });
}

ConsoleWriter::~ConsoleWriter() {
  stdout_->forget_waiters();
  stderr_->forget_waiters();
  set_bar("");
  stdout_->drain();
  if (const int error = stdout_->write_error(); error != 0 && stderr_ != stdout_) {
    line(Stream::kStderr, std::string("ddprun: standard output could not be written completely: ") + std::strerror(error) +
                              "; the missing lines are in the log files and the report, if the job has any");
  }
  stderr_->drain();
  stdout_->close();
  stderr_->close();
}

void ConsoleWriter::set_rules(const OutputRules& rules) {
  rules_ = rules;
  for (ConsoleSink* each : {stdout_.get(), stderr_.get()}) each->set_lossless(!rules.may_drop || !each->terminal());
}

bool ConsoleWriter::shows_all(Stream stream) const {
  return sink(stream).lossless();
}

bool ConsoleWriter::is_behind(Stream stream) const {
  return sink(stream).waiting_bytes() > kQueueBytes / 2;
}

void ConsoleWriter::when_at_most(Stream stream, std::size_t bytes, std::function<void()> act) {
  sink(stream).when_at_most(bytes, std::move(act));
}

bool ConsoleWriter::is_terminal(Stream stream) const {
  return sink(stream).terminal();
}

bool ConsoleWriter::colours(Stream stream) const {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal(stream) && (no_color == nullptr || *no_color == '\0');
}

winsize ConsoleWriter::size(Stream stream) const {
  winsize size{};
  if (!sink(stream).terminal() || ::ioctl(sink(stream).fd(), TIOCGWINSZ, &size) != 0) return {};
  return size;
}

int ConsoleWriter::columns() const {
  const winsize now = size(stderr_->terminal() ? Stream::kStderr : Stream::kStdout);
  return now.ws_col > 0 ? now.ws_col : 80;
}

void ConsoleWriter::lines(Stream stream, std::string_view text) {
  sink(stream).append(text, Origin::kWorkers);
}

void ConsoleWriter::line(Stream stream, std::string_view text) {
  std::string whole(text);
  whole += '\n';
  sink(stream).append(whole, Origin::kOurs);
}

void ConsoleWriter::event(std::string_view text) {
  stdout_->append(text, Origin::kOurs);
}

bool ConsoleWriter::part(Stream stream, int source, std::string_view full_text, std::string_view more, bool ends) {
  return sink(stream).part(source, full_text, more, ends);
}

void ConsoleWriter::set_bar(std::string_view text) {
  (stderr_->terminal() ? stderr_ : stdout_)->set_bar(text);
}

std::vector<ConsoleWriter::StreamFile> ConsoleWriter::files() const {
  std::vector<StreamFile> files;
  if (FileQueue* const queue = stdout_->files()) files.push_back({Stream::kStdout, queue});
  if (FileQueue* const queue = is_one_file() ? nullptr : stderr_->files()) files.push_back({Stream::kStderr, queue});
  return files;
}

std::uint64_t ConsoleWriter::dropped_lines() const {
  return stdout_->dropped() + (stderr_ == stdout_ ? 0 : stderr_->dropped());
}

}  // namespace ddprun
