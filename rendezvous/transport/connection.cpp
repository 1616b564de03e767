// Implementation of connection.hpp.
//
// Note: all connections share one buffer. Asio only reports that a socket is readable. The bytes are then read into the shared
// buffer, decrypted and split into frames within one call. With ten thousand members, separate buffers would take most of the
// memory of the process.
#include "rendezvous/transport/connection.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <boost/asio/post.hpp>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

constexpr int kMaxReadsPerEvent = 4;  // after this number of reads, other connections are served first
constexpr std::size_t kKeptCapacity = 1 << 10;
constexpr std::size_t kSentPart = 1 << 18;
constexpr std::size_t kMaxBatchBytes = 1 << 16;  // limit for the answers that are sent in one call

using boost::asio::ip::tcp;

void release_memory(std::string& text) {
  if (text.capacity() > kKeptCapacity) {
    std::string().swap(text);
  } else {
    text.clear();
  }
}

}  // namespace

void TransportShared::note(PeerFault fault, const std::string& peer, std::uint8_t peer_version) {
  const std::string what = describe(fault, protocol_version, peer_version);
  const auto line = bad_peers.note(fault, peer, what, std::chrono::steady_clock::now());
  if (line && log) log("rendezvous: " + *line);
}

tcp::endpoint unmapped(const tcp::endpoint& endpoint) {
  const auto address = endpoint.address();
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return endpoint;
  return {boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6()), endpoint.port()};
}

std::string to_text(const tcp::endpoint& endpoint) {
  const tcp::endpoint plain = unmapped(endpoint);
  const std::string address = plain.address().to_string();
  return (plain.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(plain.port());
}

void set_socket_options(int fd, const TransportLimits& limits) {
  const auto set = [fd](int level, int name, int value) {
    // Errors are ignored. Only an old kernel does not have one of the options, and in that case the lease still detects a dead
    // peer.
    [[maybe_unused]] const int result = ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(limits.probe_after.count()));
  set(IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(limits.probe_interval.count()));
  set(IPPROTO_TCP, TCP_KEEPCNT, limits.probes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limits.user_timeout.count()));
}

Connection::Connection(std::shared_ptr<TransportShared> shared, tcp::socket socket, const Endpoint& remote, TlsRole role)
    : shared_(std::move(shared)),
      socket_(std::move(socket)),
      frames_(shared_->limits.frame_bytes),
      remote_(unmapped(remote)),
      role_(role) {}

// ---- Handshake ----

void Connection::start_handshake(HandshakeHandlers handlers, std::string_view received) {
  const auto self = shared_from_this();
  handshake_ = std::move(handlers);
  if (role_ == TlsRole::kClient) {
    tls_ = shared_->keys->open(role_);
    if (!tls_ || tls_->start(out_) == TlsState::kFailed) {
      return end_handshake({Handshake::End::kLost, {}, 0, "OpenSSL cannot start a connection"});
    }
    flush();
  }
  if (stage_ != Stage::kHandshake) return;
  if (!received.empty() && take(received) == More::kNo) return;
  // Read immediately, because the ClientHello of a member has usually arrived already. Then admission.hpp counts the member as
  // started.
  read_available();
}

Connection::More Connection::take_handshake(TlsState state) {
  if (state == TlsState::kFailed) {
    end_handshake({Handshake::End::kFault, tls_->failure(), tls_->peer().protocol_version, tls_->detail()});
    return More::kNo;
  }
  if (role_ == TlsRole::kServer && !proven_ && !out_.empty()) {
    proven_ = true;
    std::string().swap(hello_);
    if (handshake_.on_started) handshake_.on_started();
  }
  if (state != TlsState::kOpen) {
    flush();
    return stage_ == Stage::kHandshake ? More::kYes : More::kNo;
  }
  stage_ = Stage::kOpen;
  boost::system::error_code ignored;
  local_ = unmapped(socket_.local_endpoint(ignored));
  peer_ = tls_->peer();
  end_handshake({Handshake::End::kOpen, {}, peer_.protocol_version, {}});
  // Sends the client's last message of the handshake, unless it has already been sent together with the first frame. If this
  // send fails, a later read reports the reason.
  if (!out_.empty()) boost::asio::post(shared_->io, [self = shared_from_this()] { self->write_out(); });
  return More::kNo;  // start() continues to read
}

void Connection::end_handshake(const Handshake& result) {
  const auto self = shared_from_this();
  const HandshakeHandlers handlers = std::exchange(handshake_, {});
  if (handlers.on_done) handlers.on_done(result);
  if (result.end == Handshake::End::kOpen || stage_ == Stage::kClosed) return;
  flush();  // sends the TLS alert with the reason, as far as the socket accepts it
  shut();
}

// ---- Reading ----

void Connection::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  boost::asio::post(shared_->io, [self = shared_from_this()] {
    if (self->stage_ != Stage::kOpen) return;
    self->deliver_frames();
    if (self->stage_ == Stage::kOpen) self->flush();
    if (self->stage_ == Stage::kOpen) self->wait_for_input();
  });
}

void Connection::wait_for_input() {
  if (reading_) return;
  reading_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
    self->reading_ = false;
    if (!error) self->read_available();
  });
}

void Connection::read_available() {
  const auto self = shared_from_this();
  for (int i = 0; i < kMaxReadsPerEvent && stage_ != Stage::kClosed; ++i) {
    const ssize_t count = ::recv(socket_.native_handle(), shared_->input.data(), shared_->input.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count < 0) return lost(std::strerror(errno));
    if (count == 0) return lost("the other end closed the connection", LostBy::kOtherEnd);
    if (take({shared_->input.data(), static_cast<std::size_t>(count)}) == More::kNo) return;
    if (static_cast<std::size_t>(count) < shared_->input.size())
      break;  // no more data now; Asio reports the socket again when data arrives
  }
  if (stage_ != Stage::kClosed) wait_for_input();
}

Connection::More Connection::take(std::string_view bytes) {
  if (stage_ == Stage::kHandshake && role_ == TlsRole::kServer) {
    received_ += bytes.size();
    if (received_ > shared_->limits.bytes_before_token) {
      end_handshake({Handshake::End::kFault, PeerFault::kTooManyBytes, 0, {}});
      return More::kNo;
    }
    if (!proven_) hello_ += bytes;
    if (!tls_ && !(tls_ = shared_->keys->open(role_))) {
      end_handshake({Handshake::End::kLost, {}, 0, "no memory for a connection"});
      return More::kNo;
    }
  }
  std::string& plaintext = shared_->plaintext;
  plaintext.clear();
  const TlsState state = tls_->receive(bytes, plaintext, out_);
  if (stage_ != Stage::kFinishing) frames_.feed(plaintext);
  return stage_ == Stage::kHandshake ? take_handshake(state) : take_records(state);
}

Connection::More Connection::take_records(TlsState state) {
  deliver_frames();
  if (stage_ == Stage::kClosed) return More::kNo;
  if (state == TlsState::kFailed) {
    fault(PeerFault::kBroken);
    return More::kNo;
  }
  if (state == TlsState::kClosed) {
    if (stage_ == Stage::kOpen) tls_->send_close_notify(out_);
    flush();
    end({Closed::Cause::kOrderly, {}, "the other agent sent goodbye"});
    return More::kNo;
  }
  flush();  // TLS itself may have produced bytes to send
  return stage_ == Stage::kClosed ? More::kNo : More::kYes;
}

void Connection::deliver_frames() {
  delivering_ = true;
  while (stage_ == Stage::kOpen) {
    const auto frame = frames_.next();
    if (!frame) break;
    if (handlers_.on_frame) handlers_.on_frame(*frame);
  }
  delivering_ = false;
  if (stage_ == Stage::kOpen && frames_.too_large()) fault(PeerFault::kFrameTooLarge);
}

// ---- Writing ----

void Connection::send(std::string_view frame) {
  const TransportLimits& limits = shared_->limits;
  if (frame.size() > limits.frame_bytes) {
    throw InternalError("a message of " + std::to_string(frame.size()) + " bytes is over the limit of " +
                        std::to_string(limits.frame_bytes));
  }
  if (stage_ != Stage::kOpen) return;
  if (queued_bytes() > 0 && queued_bytes() + frame.size() > limits.write_queue_bytes) return fault(PeerFault::kSlowReader);
  std::string& plaintext = shared_->frame;
  plaintext.clear();
  append_frame(frame, plaintext);
  const TlsState state = tls_->send(plaintext, out_);
  release_memory(plaintext);
  if (state == TlsState::kFailed) return lost("OpenSSL: " + tls_->detail());
  if (!delivering_ || queued_bytes() > kMaxBatchBytes) flush();
}

void Connection::flush() {
  const int error = write_out();
  // During the handshake a failed send is ignored. The peer may have sent an alert with the reason, which the next read finds.
  if (error != 0 && (stage_ == Stage::kOpen || stage_ == Stage::kFinishing)) return lost(std::strerror(error));
  if (stage_ == Stage::kFinishing && out_.empty()) ::shutdown(socket_.native_handle(), SHUT_WR);
}

// Sends as much of the queue as the socket accepts. The remaining bytes are sent when the socket is writable again. Returns 0,
// or the errno of a failure.
int Connection::write_out() {
  while (stage_ != Stage::kClosed && sent_ < out_.size()) {
    const ssize_t count = ::send(socket_.native_handle(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_for_output();
      return 0;
    }
    if (count < 0) return errno;
    sent_ += static_cast<std::size_t>(count);
    if (sent_ >= kSentPart) {
      out_.erase(0, sent_);
      sent_ = 0;
    }
  }
  release_memory(out_);
  sent_ = 0;
  return 0;
}

void Connection::wait_for_output() {
  if (writing_) return;
  writing_ = true;
  socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](const boost::system::error_code& error) {
    self->writing_ = false;
    if (!error && self->stage_ != Stage::kClosed) self->flush();
  });
}

// ---- Ending ----

// Note: sockets with duplicates. To remove a socket from its epoll set, Asio relies on close(). But the kernel removes the
// socket only when no process has a duplicate of the descriptor any more. So if a socket was passed to another process, call
// release() instead of close().
void Connection::hand_off() {
  boost::system::error_code error;
  out_.clear();
  stage_ = Stage::kClosed;
  if (const int fd = socket_.release(error); !error) ::close(fd);
}

void Connection::give_up_after(std::chrono::milliseconds silence) {
  TransportLimits limits;
  limits.give_up_after(silence);
  if (stage_ != Stage::kClosed) set_socket_options(socket_.native_handle(), limits);
}

void Connection::finish() {
  if (stage_ == Stage::kHandshake) return close();
  if (stage_ != Stage::kOpen) return;
  tls_->send_close_notify(out_);
  stage_ = Stage::kFinishing;
  // If close() is called with unread input, the kernel sends a reset, and the peer may lose data that it has not read yet. So
  // this agent continues to read until the peer closes the connection.
  linger_timer_ = std::make_unique<boost::asio::steady_timer>(shared_->io, shared_->limits.linger_time);
  linger_timer_->async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->end({Closed::Cause::kOrderly, {}, "the other agent did not answer the goodbye"});
  });
  flush();
  if (stage_ == Stage::kFinishing) wait_for_input();
}

void Connection::close() {
  if (stage_ == Stage::kClosed) return;
  if (delivering_) write_out();  // sends the answers that were queued during delivery
  shut();
  // The handlers are destroyed later, because close() may be running inside one of them.
  boost::asio::post(shared_->io, [self = shared_from_this()] {
    self->handlers_ = {};
    self->handshake_ = {};
  });
}

void Connection::lost(const std::string& why, LostBy by) {
  if (stage_ == Stage::kHandshake) return end_handshake({Handshake::End::kLost, {}, 0, why});
  if (stage_ == Stage::kFinishing) return end({Closed::Cause::kOrderly, {}, "this agent sent goodbye"});
  end({Closed::Cause::kLost, {}, why, by == LostBy::kNetwork});
}

void Connection::fault(PeerFault fault) {
  shared_->note(fault, to_text(remote_), peer_.protocol_version);
  end({Closed::Cause::kFault, fault, describe(fault, shared_->protocol_version, peer_.protocol_version)});
}

void Connection::end(Closed closed) {
  if (stage_ == Stage::kClosed) return;
  shut();
  boost::asio::post(shared_->io, [self = shared_from_this(), closed = std::move(closed)] {
    const Handlers handlers = std::exchange(self->handlers_, {});
    if (handlers.on_closed) handlers.on_closed(closed);
  });
}

void Connection::shut() {
  if (stage_ == Stage::kClosed) return;
  stage_ = Stage::kClosed;
  linger_timer_.reset();
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace ddprun
