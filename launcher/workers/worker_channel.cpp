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

constexpr std::size_t kMaxOutboxBytes = 64u << 20;  // maximum number of queued bytes; several of the store's largest values fit
// The maximum number of bytes that are read for one event. A worker that writes faster than we read must not delay the agent's
// other work. kMaxDrained applies after a worker has ended. It is larger than the kernel's socket buffer, so all remaining
// bytes are read.
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
  // The buffer is on the stack. With a thousand workers, a buffer in each object would use 16 MB.
  std::array<std::byte, 16 << 10> chunk;
  for (std::size_t read = 0; socket_.is_open() && read < most;) {
    const ssize_t n = receive(chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return More::kLater;
    if (n <= 0) return More::kNever;
    read += static_cast<std::size_t>(n);
    if (!reading_stopped_) on_bytes(std::span(chunk).first(static_cast<std::size_t>(n)));
    if (static_cast<std::size_t>(n) < chunk.size()) break;
  }
  return socket_.is_open() ? More::kLater : More::kNever;
}

// Reads bytes. The first successful read also gets the pid of the sender from the kernel (SO_PASSCRED, set by channel_pair()).
ssize_t WorkerChannel::receive(std::span<std::byte> buffer) {
  if (knows_channel_pid_) return ::recv(socket_.native_handle(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n <= 0) return n;
  knows_channel_pid_ = true;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
    channel_pid_ = sender.pid;
  }
  return n;
}

void WorkerChannel::on_bytes(std::span<const std::byte> bytes) {
  try {
    decoder_.feed(bytes);
    while (auto message = decoder_.next_from_worker()) {
      const auto* hello = std::get_if<channel::Hello>(&*message);
      const bool foreign = hello != nullptr && !channel::is_compatible(*hello);
      if (foreign) stop_reading();  // a different major version, so later messages cannot be parsed
      on_message_(*message);
      if (foreign) return;
    }
  } catch (const channel::ProtocolError& error) {
    stop_reading();
    on_broken_(error.what());
  }
}

// Ends the channel without closing the socket. A worker that writes to a closed socket would get SIGPIPE, which kills it by
// default. So the socket stays open, and its bytes are read and dropped.
void WorkerChannel::stop_reading() {
  reading_stopped_ = true;  // the outbox stays, since a write of its first message may be pending
  boost::system::error_code ignored;
  if (socket_.is_open()) socket_.shutdown(boost::asio::local::stream_protocol::socket::shutdown_send, ignored);
}

void WorkerChannel::send(const channel::FromAgent& message) {
  if (!socket_.is_open() || reading_stopped_) return;
  outbox_.push_back(channel::encode(message));
  outbox_bytes_ += outbox_.back().size();
  if (outbox_bytes_ > kMaxOutboxBytes) {
    stop_reading();
    on_broken_("the worker does not read its channel: " + std::to_string(outbox_bytes_) + " bytes wait for it");
    return;
  }
  if (outbox_.size() == 1) write_next();
}

// Writes the oldest message. Asio sends as much as the socket accepts immediately, and the rest when the socket is writable
// again.
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
