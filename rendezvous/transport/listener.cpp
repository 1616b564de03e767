#include "rendezvous/transport/listener.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "rendezvous/transport/admission.hpp"
#include "rendezvous/transport/port.hpp"

namespace ddprun {
namespace {

using boost::asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr int kMaxAcceptsPerEvent = 32;  // after this number of accepted connections, other events are handled first
constexpr std::chrono::milliseconds kPauseWithoutMemory{100};

tcp::endpoint endpoint_of(const sockaddr_storage& address) {
  tcp::endpoint endpoint(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), 0);
  std::memcpy(endpoint.data(), &address, endpoint.size());
  return endpoint;
}

SourceAddress source_of(const tcp::endpoint& endpoint) {
  SourceAddress source{};
  const auto address = endpoint.address();
  if (address.is_v4()) {
    const auto bytes = boost::asio::ip::make_address_v6(boost::asio::ip::v4_mapped, address.to_v4()).to_bytes();
    std::copy(bytes.begin(), bytes.end(), source.begin());
  } else {
    const auto bytes = address.to_v6().to_bytes();
    std::copy_n(bytes.begin(), bytes.size() / 2, source.begin());
  }
  return source;
}

Admission::Limits admission_limits(const TransportLimits& limits) {
  Admission::Limits result;
  result.total = limits.unauthenticated;
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur != RLIM_INFINITY) {
    result.total = std::clamp<std::size_t>(descriptors.rlim_cur / 4, 1, result.total);
  }
  result.silent_per_source = std::min(limits.silent_per_source, result.total);
  result.handshake_time = limits.handshake_time;
  return result;
}

Descriptor open_spare() {
  return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

class Acceptor final : public Listener, public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(std::shared_ptr<TransportShared> shared, ListenOptions options,
           std::function<void(std::shared_ptr<Connection>)> on_member)
      : shared_(std::move(shared)),
        acceptor_(open_port(shared_->io, options)),
        timer_(shared_->io),
        admission_(admission_limits(shared_->limits)),
        hand_over_(std::move(options.hand_over)),
        take_foreign_(std::move(options.take_foreign)),
        on_member_(std::move(on_member)),
        spare_(open_spare()) {
    prepare_port();
  }

  tcp::endpoint local() const override { return local_; }
  std::size_t unauthenticated() const override { return admission_.size(); }

  void wait() {
    if (!acceptor_.is_open() || waiting_) return;
    waiting_ = true;
    acceptor_.async_wait(tcp::acceptor::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
      self->waiting_ = false;
      if (!error) self->accept_some();
    });
  }

  void close_port() override {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  }

  // Calls release() instead of close(): see the note "sockets with duplicates" in connection.cpp.
  Descriptor release_port() override {
    boost::system::error_code error;
    const int fd = acceptor_.is_open() ? acceptor_.release(error) : -1;
    return Descriptor(error ? -1 : fd);
  }

  void take_port(Descriptor port) override {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    boost::system::error_code error = boost::asio::error::bad_descriptor;
    if (!closed_ && !acceptor_.is_open() && ::getsockname(port.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0) {
      acceptor_.assign(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), port.get(), error);
    }
    if (error) return;
    port.release();
    prepare_port();
    wait();
  }

  void close() {
    close_port();
    closed_ = true;
    timer_.cancel();
    for (auto& [id, newcomer] : std::exchange(newcomers_, {})) newcomer->close();
  }

  void adopt(Descriptor connection, std::string_view hello) override {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (closed_ || ::getpeername(connection.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        !admission_.may_admit(Clock::now())) {
      return;
    }
    welcome(std::move(connection), address, hello);
    set_timer();
  }

 private:
  enum class More { kYes, kNo };

  void prepare_port() {
    boost::system::error_code ignored;
    if (!acceptor_.is_open()) return;
    local_ = unmapped(acceptor_.local_endpoint(ignored));
    acceptor_.native_non_blocking(true, ignored);
    set_socket_options(acceptor_.native_handle(), shared_->limits);
  }

  void accept_some() {
    for (int i = 0; i < kMaxAcceptsPerEvent && acceptor_.is_open(); ++i) {
      if (!admission_.may_admit(Clock::now())) {
        paused_until_ = admission_.admits_at();
        set_timer();
        return;
      }
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      Descriptor accepted(
          ::accept4(acceptor_.native_handle(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (accepted.get() >= 0) {
        welcome(std::move(accepted), address, {});
      } else if (accept_failed(errno) == More::kNo) {
        return;
      }
    }
    set_timer();
    wait();
  }

  // Handles a failed accept(2). Returns kYes if the next connection may be accepted immediately. If it returns another value,
  // it has scheduled the next attempt.
  More accept_failed(int error) {
    switch (error) {
      case EAGAIN:
        set_timer();
        wait();
        return More::kNo;
      case EMFILE:
      case ENFILE:
        if (!connection_pending())
          // this is not an error, because accept(2) needs a free descriptor even if no connection waits
          return accept_failed(EAGAIN);
        if (const auto id = admission_.evict_one()) {
          reject(*id, PeerFault::kCrowdedOut);
          return More::kYes;
        }
        return refuse_one();
      case ENOBUFS:
      case ENOMEM:
        pause();
        return More::kNo;
      case EBADF:
      case EINVAL:
        return More::kNo;
      default:  // the connection was closed, or has a pending network error
        return More::kYes;
    }
  }

  // Refuses the pending connection, because no descriptor is free and no unauthenticated connection can be closed. If the
  // connection stayed pending, the event loop would report it again and again. So this function closes a spare descriptor,
  // accepts the connection with the descriptor that is now free, and closes it.
  More refuse_one() {
    spare_ = Descriptor();
    const bool accepted = Descriptor(::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC)).get() >= 0;
    spare_ = open_spare();
    shared_->note(PeerFault::kNoDescriptors, "a connection", 0);
    if (accepted) return More::kYes;
    pause();
    return More::kNo;
  }

  bool connection_pending() {
    pollfd port{acceptor_.native_handle(), POLLIN, 0};
    return ::poll(&port, 1, 0) > 0;
  }

  void pause() {
    paused_until_ = Clock::now() + kPauseWithoutMemory;
    set_timer();
  }

  void welcome(Descriptor connection, const sockaddr_storage& address, std::string_view hello) {
    tcp::socket socket(shared_->io);
    boost::system::error_code error;
    socket.assign(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), connection.get(), error);
    if (error) return;
    connection.release();
    auto newcomer = std::make_shared<Connection>(shared_, std::move(socket), endpoint_of(address), TlsRole::kServer);
    const auto [id, evicted] = admission_.admit(source_of(newcomer->remote()), Clock::now());
    for (const Admission::Id old : evicted) reject(old, PeerFault::kCrowdedOut);
    newcomers_.emplace(id, newcomer);
    // The pointers are weak, because a new connection must not keep the listener alive, and these handlers must not keep the
    // connection alive.
    newcomer->start_handshake({[acceptor = weak_from_this(), id = id] {
                                 if (const auto self = acceptor.lock()) self->admission_.started(id);
                               },
                               [acceptor = weak_from_this(), id = id](const Connection::Handshake& result) {
                                 if (const auto self = acceptor.lock()) self->done(id, result);
                               }},
                              hello);
  }

  void done(Admission::Id id, const Connection::Handshake& result) {
    const auto found = newcomers_.find(id);
    if (found == newcomers_.end()) return;
    const auto newcomer = std::move(found->second);
    newcomers_.erase(found);
    admission_.forget(id);
    if (result.end == Connection::Handshake::End::kOpen) {
      on_member_(newcomer);
    } else if (result.end == Connection::Handshake::End::kFault) {
      if (handed_off(*newcomer, result.fault)) return resume();
      shared_->note(result.fault, to_text(newcomer->remote()), result.peer_version);
    }
    resume();
  }

  bool handed_off(Connection& newcomer, PeerFault fault) {
    bool taken = false;
    if (fault == PeerFault::kWrongRunId && hand_over_) {
      taken = hand_over_(newcomer.refused_run(), newcomer.native_handle(), newcomer.hello());
    } else if (fault == PeerFault::kNotTls && take_foreign_) {
      taken = take_foreign_(newcomer.native_handle(), newcomer.hello());
    }
    if (taken) newcomer.hand_off();
    return taken;
  }

  void reject(Admission::Id id, PeerFault fault) {
    const auto found = newcomers_.find(id);
    if (found == newcomers_.end()) return;
    const auto newcomer = std::move(found->second);
    newcomers_.erase(found);
    shared_->note(fault, to_text(newcomer->remote()), 0);
    newcomer->close();
  }

  void resume() {
    if (!paused_until_ || closed_) return;
    paused_until_.reset();
    wait();
  }

  void set_timer() {
    std::optional<Clock::time_point> next = admission_.next_deadline();
    if (paused_until_ && (!next || *paused_until_ < *next)) next = paused_until_;
    if (!next || closed_ || (armed_for_ && *armed_for_ <= *next)) return;
    armed_for_ = next;
    timer_.expires_at(*next);
    timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto self = weak.lock();
      if (error || !self || self->closed_) return;
      self->armed_for_.reset();
      const auto now = Clock::now();
      for (const Admission::Id id : self->admission_.expire(now)) self->reject(id, PeerFault::kSilent);
      if (self->paused_until_ && *self->paused_until_ <= now) self->resume();
      self->set_timer();
    });
  }

  std::shared_ptr<TransportShared> shared_;
  tcp::acceptor acceptor_;
  boost::asio::steady_timer timer_;
  Admission admission_;
  std::function<bool(const ShortRunDigest&, int, std::string_view)> hand_over_;
  std::function<bool(int, std::string_view)> take_foreign_;
  std::function<void(std::shared_ptr<Connection>)> on_member_;
  std::unordered_map<Admission::Id, std::shared_ptr<Connection>> newcomers_;
  tcp::endpoint local_;
  std::optional<Clock::time_point> paused_until_;
  std::optional<Clock::time_point> armed_for_;
  Descriptor spare_;
  bool waiting_ = false;
  bool closed_ = false;
};

}  // namespace

std::shared_ptr<Listener> make_listener(std::shared_ptr<TransportShared> shared, ListenOptions options,
                                        std::function<void(std::shared_ptr<Connection>)> on_member) {
  const auto acceptor = std::make_shared<Acceptor>(std::move(shared), std::move(options), std::move(on_member));
  acceptor->wait();
  return {acceptor.get(), [acceptor](Listener*) { acceptor->close(); }};
}

}  // namespace ddprun
