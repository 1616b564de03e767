// Implementation of output_reader.hpp.
#include "launcher/agent/output_reader.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <utility>

#include "common/base/check.hpp"
#include "common/system/realtime.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kChunkBytes = 64 << 10;
constexpr std::chrono::seconds kIsNamedAfter{2};  // a log file that accepts no data for this long is named in a message

}  // namespace

OutputReader::OutputReader(boost::asio::io_context& io, ConsoleWriter& console, WorkerOutput& output, Hooks hooks)
    : console_(console),
      output_(output),
      hooks_(std::move(hooks)),
      chunk_(std::make_unique_for_overwrite<char[]>(kChunkBytes)),
      held_timer_(io) {}

void OutputReader::begin_round(std::size_t workers) {
  ++round_;
  began_ = std::chrono::steady_clock::now();
  waiting_ = 0;
  pipes_.clear();
  pipes_.resize(workers);
  adopted_.assign(workers, {});
  held_.clear();
  named_.clear();
  nobody_writes_ = false;
}

void OutputReader::adopt(int rank, Stream stream, Pipe adopted) {
  pipe(rank, stream) = std::move(adopted);
  ++of_rank(adopted_, rank)[static_cast<std::size_t>(stream)];
  wait(rank, stream);
}

void OutputReader::wait(int rank, Stream stream) {
  if (!nobody_writes_ && !output_.has_room(rank, stream)) return wait_for_file(rank, stream);
  if (!waits_for_console(rank, stream)) {
    listen(rank, stream);
    return;
  }
  ++waiting_;
  const int number = adopted(rank, stream);
  console_.when_at_most(console_.shown_on(stream), ConsoleWriter::kQueueBytes / 2,
                        [this, rank, stream, number, round = round_] {
                          if (round != round_) return;
                          --waiting_;
                          if (number == adopted(rank, stream)) listen(rank, stream);
                          hooks_.ended();
                        });
}

bool OutputReader::waits_for_console(int rank, Stream stream) const {
  return output_.is_awaited(rank, stream) && console_.is_behind(console_.shown_on(stream));
}

void OutputReader::wait_for_file(int rank, Stream stream) {
  const HeldPipe held{rank, stream, adopted(rank, stream)};
  if (held_.empty()) {
    held_timer_.expires_after(kIsNamedAfter);
    held_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) name_those_that_wait();
    });
  }
  held_.emplace(held, std::chrono::steady_clock::now());
  output_.when_room(rank, stream, [this, held, round = round_] {
    if (round != round_ || held_.erase(held) == 0) return;
    if (held.adopted == adopted(held.rank, held.stream)) wait(held.rank, held.stream);
    if (held_.empty()) {
      held_timer_.cancel();
      hooks_.goes_on();
    }
    hooks_.ended();
  });
}

// A disk that is only slower than its worker still accepts some data, so its file is not named.
void OutputReader::name_those_that_wait() {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [held, since] : held_) {
    if (now - since < kIsNamedAfter || !is_full(held.rank, held.stream) || !named_.insert(held.rank).second) continue;
    console_.line(Stream::kStderr, "ddprun: rank " + std::to_string(output_.rank_of(held.rank)) +
                                       " waits for its output: " + output_.log_of(held.rank, held.stream).string() +
                                       " takes nothing. It goes on when that does, and does not count as hung meanwhile");
  }
  if (held_.empty()) return;
  held_timer_.expires_after(kIsNamedAfter);
  held_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) name_those_that_wait();
  });
}

void OutputReader::nobody_writes() {
  nobody_writes_ = true;
  for (const auto& [held, since] : std::exchange(held_, {})) {
    if (held.adopted == adopted(held.rank, held.stream)) listen(held.rank, held.stream);
  }
  held_timer_.cancel();
}

void OutputReader::listen(int rank, Stream stream) {
  Pipe& from = pipe(rank, stream);
  if (!from) return;
  from->async_wait(boost::asio::posix::stream_descriptor::wait_read, [this, rank, stream, number = adopted(rank, stream),
                                                                      round = round_](const boost::system::error_code& error) {
    if (error || round != round_ || number != adopted(rank, stream)) return;
    // Other workers may have filled the console meanwhile.
    if (waits_for_console(rank, stream) || read(rank, stream) != Got::kEnd) wait(rank, stream);
  });
}

OutputReader::Got OutputReader::read(int rank, Stream stream) {
  Pipe& from = pipe(rank, stream);
  if (!from) return Got::kEnd;
  const ssize_t n = ::read(from->native_handle(), chunk_.get(), kChunkBytes);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Got::kNothingYet;
  if (n > 0) {
    if (const auto began = std::exchange(began_, std::nullopt)) {
      const std::chrono::duration<double> after = std::chrono::steady_clock::now() - *began;
      hooks_.first({output_.rank_of(rank), after.count(), realtime_ns()});
    }
    hooks_.printed(rank);
    output_.bytes(rank, stream, std::span(chunk_.get(), static_cast<std::size_t>(n)));
    return Got::kBytes;
  }
  end(rank, stream);
  hooks_.ended();
  return Got::kEnd;
}

void OutputReader::drain(int rank) {
  constexpr int kMostChunks = 64;
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    // FIONREAD does not count a terminal's last bytes that the kernel has not passed on yet, but read() waits for them.
    for (int i = 0; i < kMostChunks && read(rank, stream) == Got::kBytes; ++i) {
    }
  }
}

void OutputReader::end(int rank) {
  end(rank, Stream::kStdout);
  end(rank, Stream::kStderr);
}

void OutputReader::end(int rank, Stream stream) {
  Pipe& from = pipe(rank, stream);
  if (!from) return;
  from.reset();
  output_.end_of_stream(rank, stream);
}

bool OutputReader::resize(int rank, Stream stream, const winsize& size) const {
  const Pipe& from = of_rank(pipes_, rank)[static_cast<std::size_t>(stream)];
  return from && ::ioctl(from->native_handle(), TIOCSWINSZ, &size) == 0;
}

bool OutputReader::reading() const {
  return std::any_of(pipes_.begin(), pipes_.end(), [](const auto& worker) { return worker[0] || worker[1]; });
}

bool OutputReader::has_unread(int rank, Stream stream) const {
  return unread(rank, stream) > 0;
}

// A pipe holds whole pages: with less than one page left, its writer blocks.
bool OutputReader::is_full(int rank, Stream stream) const {
  const Pipe& from = of_rank(pipes_, rank)[static_cast<std::size_t>(stream)];
  constexpr int kPage = 4096;
  return from && unread(rank, stream) > ::fcntl(from->native_handle(), F_GETPIPE_SZ) - kPage;
}

int OutputReader::unread(int rank, Stream stream) const {
  const Pipe& from = of_rank(pipes_, rank)[static_cast<std::size_t>(stream)];
  int bytes = 0;
  return from && ::ioctl(from->native_handle(), FIONREAD, &bytes) == 0 ? bytes : 0;
}

}  // namespace ddprun
