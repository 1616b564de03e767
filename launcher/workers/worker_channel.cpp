// Implementation of worker_channel.hpp.
#include "launcher/workers/worker_channel.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <variant>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "common/channel/version.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxOutboxBytes = 64u << 20;  // large enough for several values of the store's maximum size
// Bytes read per event loop turn: a worker that writes faster than it is read must not starve the agent's other work. The
// second limit applies when a worker has ended. It is larger than the kernel's socket buffer, so all remaining bytes are read.
constexpr std::size_t kMaxRead = 256u << 10;
constexpr std::size_t kMaxDrained = 4u << 20;

}  // namespace

WorkerChannel::WorkerChannel(boost::asio::io_context& io, int fd, OnMessage on_message, OnBroken on_broken)
    : socket_(io, boost::asio::local::stream_protocol(), fd),
      on_message_(std::move(on_message)),
      on_broken_(std::move(on_broken)) {}

void WorkerChannel::start() {
  wait();
}

void WorkerChannel::wait() {
  socket_.async_wait(boost::asio::local::stream_protocol::socket::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (!error && self->socket_.is_open() && self->read_available(kMaxRead) == More::kLater) self->wait();
                     });
}

WorkerChannel::More WorkerChannel::read_available(std::size_t most) {
  // Allocated on the stack: there may be a thousand workers, whose buffers would add up.
  std::array<std::byte, 16 << 10> chunk;
  for (std::size_t read = 0; socket_.is_open() && read < most;) {
    const ssize_t n = receive(chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return More::kLater;
    if (n <= 0) return More::kNever;
    read += static_cast<std::size_t>(n);
    if (!deaf_) hear(std::span(chunk).first(static_cast<std::size_t>(n)));
    if (static_cast<std::size_t>(n) < chunk.size()) break;
  }
  return socket_.is_open() ? More::kLater : More::kNever;
}

// The kernel reports the sender of the bytes (SO_PASSCRED, set by channel_pair()). Only the first sender is needed.
ssize_t WorkerChannel::receive(std::span<std::byte> room) {
  if (knows_speaker_) return ::recv(socket_.native_handle(), room.data(), room.size(), MSG_DONTWAIT);
  iovec part{room.data(), room.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n <= 0) return n;
  knows_speaker_ = true;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
    speaker_ = sender.pid;
  }
  return n;
}

void WorkerChannel::hear(std::span<const std::byte> bytes) {
  try {
    decoder_.feed(bytes);
    while (auto message = decoder_.next_from_worker()) {
      const auto* hello = std::get_if<channel::Hello>(&*message);
      const bool foreign = hello != nullptr && !channel::speaks_our_version(*hello);
      if (foreign) go_deaf();  // another major version: later messages could not be parsed
      on_message_(*message);
      if (foreign) return;
    }
  } catch (const channel::ProtocolError& error) {
    go_deaf();
    on_broken_(error.what());
  }
}

// Stops sending, but keeps the socket open and drains it: a worker that writes to a closed socket dies of SIGPIPE by default.
void WorkerChannel::go_deaf() {
  deaf_ = true;  // queued bytes are still sent: a message may be half written
  boost::system::error_code ignored;
  if (socket_.is_open()) socket_.shutdown(boost::asio::local::stream_protocol::socket::shutdown_send, ignored);
}

void WorkerChannel::send(const channel::FromAgent& message) {
  if (!socket_.is_open() || deaf_) return;
  outbox_.push_back(channel::encode(message));
  outbox_bytes_ += outbox_.back().size();
  if (outbox_bytes_ > kMaxOutboxBytes) {
    go_deaf();
    on_broken_("the worker does not read its channel: " + std::to_string(outbox_bytes_) + " bytes wait for it");
    return;
  }
  if (outbox_.size() == 1) write_next();
}

// A small message is usually sent immediately; Asio sends the rest later.
void WorkerChannel::write_next() {
  boost::asio::async_write(socket_, boost::asio::buffer(outbox_.front()),
                           [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
                             if (error || self->outbox_.empty()) return;
                             self->outbox_bytes_ -= self->outbox_.front().size();
                             self->outbox_.pop_front();
                             if (!self->outbox_.empty() && self->socket_.is_open()) self->write_next();
                           });
}

void WorkerChannel::drain() {
  if (socket_.is_open()) read_available(kMaxDrained);
}

void WorkerChannel::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace ddprun
