// Implementation of output_reader.hpp.
#include "launcher/agent/output_reader.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

namespace ddprun {
namespace {

constexpr std::size_t kChunkBytes = 64 << 10;

}  // namespace

OutputReader::OutputReader(ConsoleWriter& console, WorkerOutput& output, Hooks hooks)
    : console_(console), output_(output), hooks_(std::move(hooks)), chunk_(kChunkBytes) {}

void OutputReader::begin_round(std::size_t workers) {
  ++round_;
  waiting_ = 0;
  pipes_.clear();
  pipes_.resize(workers);
}

void OutputReader::adopt(int rank, Stream stream, Pipe adopted) {
  pipe(rank, stream) = std::move(adopted);
  wait(rank, stream);
}

void OutputReader::wait(int rank, Stream stream) {
  if (!waits_for_console(rank, stream)) {
    listen(rank, stream);
    return;
  }
  ++waiting_;
  console_.when_at_most(console_.shown_on(stream), ConsoleWriter::kQueueBytes / 2, [this, rank, stream, round = round_] {
    if (round != round_) return;
    --waiting_;
    listen(rank, stream);
    hooks_.ended();
  });
}

bool OutputReader::waits_for_console(int rank, Stream stream) const {
  return output_.is_awaited(rank, stream) && console_.is_behind(console_.shown_on(stream));
}

void OutputReader::listen(int rank, Stream stream) {
  Pipe& from = pipe(rank, stream);
  if (!from) return;
  from->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                   [this, rank, stream](const boost::system::error_code& error) {
                     if (error) return;
                     // Others may have filled the console meanwhile.
                     if (waits_for_console(rank, stream) || read(rank, stream)) wait(rank, stream);
                   });
}

// False at the end of the stream.
bool OutputReader::read(int rank, Stream stream) {
  Pipe& from = pipe(rank, stream);
  if (!from) return false;
  const ssize_t n = ::read(from->native_handle(), chunk_.data(), chunk_.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n > 0) {
    hooks_.printed(rank);
    output_.bytes(rank, stream, std::span(chunk_).first(static_cast<std::size_t>(n)));
    return true;
  }
  end(rank, stream);
  hooks_.ended();
  return false;
}

void OutputReader::drain(int rank) {
  constexpr int kMostChunks = 64;
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    for (int i = 0; i < kMostChunks && unread(rank, stream) > 0; ++i) read(rank, stream);
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

bool OutputReader::reading() const {
  return std::any_of(pipes_.begin(), pipes_.end(), [](const auto& worker) { return worker[0] || worker[1]; });
}

bool OutputReader::has_unread(int rank, Stream stream) const {
  return unread(rank, stream) > 0;
}

int OutputReader::unread(int rank, Stream stream) const {
  const Pipe& from = pipes_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(stream)];
  int bytes = 0;
  return from && ::ioctl(from->native_handle(), FIONREAD, &bytes) == 0 ? bytes : 0;
}

}  // namespace ddprun
