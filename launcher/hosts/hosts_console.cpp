#include "launcher/hosts/hosts_console.hpp"

#include <unistd.h>

#include "common/system/write_all.hpp"

namespace ddprun {
namespace {

// A pipe that is writable accepts this many bytes without blocking (PIPE_BUF).
constexpr std::size_t kMaxWrite = 4096;

}  // namespace

HostsConsole::HostsConsole(const std::vector<std::string>& names, bool json)
    : output_{.fd = STDOUT_FILENO}, errors_{.fd = STDERR_FILENO} {
  for (const std::string& name : names) {
    const std::string prefix = names.size() == 1 ? "" : "[" + name + "] ";
    output_lines_.push_back({.prefix = json ? "" : prefix});
    error_lines_.push_back({.prefix = prefix});
  }
}

void HostsConsole::add(std::size_t host, Stream stream, std::string_view bytes) {
  Target& target = stream == Stream::kOutput ? output_ : errors_;
  Lines& lines = (stream == Stream::kOutput ? output_lines_ : error_lines_)[host];
  if (lines.prefix.empty() && output_lines_.size() == 1) {
    if (!target.closed) target.queue.push(std::string(bytes));
    return;
  }
  lines.splitter.feed(bytes, [&](std::string_view whole) { add_lines(target, lines, whole); });
  if (lines.splitter.too_long()) add_lines(target, lines, lines.splitter.take_rest() + "\n");
}

void HostsConsole::end(std::size_t host) {
  if (Lines& lines = output_lines_[host]; !lines.splitter.rest().empty())
    add_lines(output_, lines, lines.splitter.take_rest() + "\n");
  if (Lines& lines = error_lines_[host]; !lines.splitter.rest().empty())
    add_lines(errors_, lines, lines.splitter.take_rest() + "\n");
}

void HostsConsole::print(const std::string& text) {
  if (!errors_.closed) errors_.queue.push("ddprun: " + text + "\n");
}

int HostsConsole::output_fd() const {
  return output_.queue.empty() ? -1 : output_.fd;
}

int HostsConsole::errors_fd() const {
  return errors_.queue.empty() ? -1 : errors_.fd;
}

void HostsConsole::write(Stream stream) {
  Target& target = stream == Stream::kOutput ? output_ : errors_;
  if (target.queue.write_to(target.fd, kMaxWrite)) return;
  target.closed = true;  // a closed console does not end the job
  target.queue = WriteQueue();
}

void HostsConsole::write_all_now() {
  output_.queue.write_blocking(output_.fd);
  errors_.queue.write_blocking(errors_.fd);
}

void HostsConsole::add_lines(Target& target, const Lines& lines, std::string_view text) {
  if (target.closed) return;
  std::string prefixed;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n') + 1);
    prefixed.append(lines.prefix).append(line);
    text.remove_prefix(line.size());
  }
  target.queue.push(std::move(prefixed));
}

}  // namespace ddprun
