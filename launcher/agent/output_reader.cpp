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
constexpr std::chrono::seconds kReportAfter{2};  // a message names a log file that accepts no data for this long

}  // namespace

OutputReader::OutputReader(boost::asio::io_context& io, ConsoleWriter& console, WorkerOutput& output, Agent& agent)
    : console_(console),
      output_(output),
      agent_(agent),
      chunk_(std::make_unique_for_overwrite<char[]>(kChunkBytes)),
      paused_timer_(io) {}

void OutputReader::begin_round(std::size_t workers) {
  ++round_;
  started_ = std::chrono::steady_clock::now();
  waiting_ = 0;
  pipes_.clear();
  pipes_.resize(workers);
  adopted_.assign(workers, {});
  paused_.clear();
  reported_ranks_.clear();
  all_writers_ended_ = false;
}

void OutputReader::adopt(int rank, Stream stream, Pipe adopted) {
  pipe(rank, stream) = std::move(adopted);
  ++of_rank(adopted_, rank)[static_cast<std::size_t>(stream)];
  wait(rank, stream);
}

void OutputReader::wait(int rank, Stream stream) {
  if (!all_writers_ended_ && !output_.has_space(rank, stream)) return wait_for_file(rank, stream);
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
                          agent_.check_round_end();
                        });
}

bool OutputReader::waits_for_console(int rank, Stream stream) const {
  return output_.is_awaited(rank, stream) && console_.is_behind(console_.shown_on(stream));
}

void OutputReader::wait_for_file(int rank, Stream stream) {
  const PausedPipe held{rank, stream, adopted(rank, stream)};
  if (paused_.empty()) {
    paused_timer_.expires_after(kReportAfter);
    paused_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) report_blocked_ranks();
    });
  }
  paused_.emplace(held, std::chrono::steady_clock::now());
  output_.when_space(rank, stream, [this, held, round = round_] {
    if (round != round_ || paused_.erase(held) == 0) return;
    if (held.adopted == adopted(held.rank, held.stream)) wait(held.rank, held.stream);
    if (paused_.empty()) {
      paused_timer_.cancel();
      agent_.on_output_resumed();
    }
    agent_.check_round_end();
  });
}

// A file is reported only if its worker's pipe is full. If a slow disk still accepts data, the pipe does not stay full.
void OutputReader::report_blocked_ranks() {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [held, since] : paused_) {
    if (now - since < kReportAfter || !is_full(held.rank, held.stream) || !reported_ranks_.insert(held.rank).second) continue;
    console_.line(Stream::kStderr, "ddprun: rank " + std::to_string(output_.rank_of(held.rank)) +
                                       " waits until its output can be written to its log file (slow or full disk?): " +
                                       output_.log_of(held.rank, held.stream).string() +
                                       ". The rank continues after that write. Until then --hang-timeout does not apply to it");
  }
  if (paused_.empty()) return;
  paused_timer_.expires_after(kReportAfter);
  paused_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) report_blocked_ranks();
  });
}

void OutputReader::all_writers_ended() {
  all_writers_ended_ = true;
  for (const auto& [held, since] : std::exchange(paused_, {})) {
    if (held.adopted == adopted(held.rank, held.stream)) listen(held.rank, held.stream);
  }
  paused_timer_.cancel();
}

void OutputReader::listen(int rank, Stream stream) {
  Pipe& from = pipe(rank, stream);
  if (!from) return;
  from->async_wait(boost::asio::posix::stream_descriptor::wait_read, [this, rank, stream, number = adopted(rank, stream),
                                                                      round = round_](const boost::system::error_code& error) {
    if (error || round != round_ || number != adopted(rank, stream)) return;
    // Other workers may have filled the console's queue since the wait started.
    if (waits_for_console(rank, stream) || read(rank, stream) != ReadResult::kEnd) wait(rank, stream);
  });
}

OutputReader::ReadResult OutputReader::read(int rank, Stream stream) {
  Pipe& from = pipe(rank, stream);
  if (!from) return ReadResult::kEnd;
  const ssize_t n = ::read(from->native_handle(), chunk_.get(), kChunkBytes);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return ReadResult::kWouldBlock;
  if (n > 0) {
    if (const auto started = std::exchange(started_, std::nullopt)) {
      const std::chrono::duration<double> after = std::chrono::steady_clock::now() - *started;
      agent_.publish(FirstOutput{output_.rank_of(rank), after.count(), realtime_ns()});
    }
    agent_.on_output(rank);
    if (tap_) tap_(output_.rank_of(rank), stream, {chunk_.get(), static_cast<std::size_t>(n)});
    output_.bytes(rank, stream, std::span(chunk_.get(), static_cast<std::size_t>(n)));
    return ReadResult::kBytes;
  }
  end(rank, stream);
  agent_.check_round_end();
  return ReadResult::kEnd;
}

void OutputReader::drain(int rank) {
  constexpr int kMaxChunks = 64;
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    // Reads until the terminal or pipe is empty. FIONREAD cannot replace the loop: it does not count the last bytes of a
    // terminal that the kernel has not passed on yet.
    for (int i = 0; i < kMaxChunks && read(rank, stream) == ReadResult::kBytes; ++i) {
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

// The kernel fills a pipe in whole pages, so a writer may block when less than one page is free.
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
