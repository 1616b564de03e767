// Implementation of handover.hpp. It uses two kinds of abstract Unix sockets. Each job has an inbox ("ddprun/UID/PORT/RUN"), to
// which the holder of the port sends connections for this job. The holder has a socket for waiting agents
// ("ddprun/UID/PORT/holder"). A waiting agent stays connected to this socket until the holder passes the port to another agent.
// If the connection ends before the waiting agent has received the port, the holder has died and the port is free.
#include "rendezvous/transport/handover.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <list>
#include <memory>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/error.hpp"
#include "rendezvous/identity/hex.hpp"
#include "rendezvous/passing/passed_descriptor.hpp"

namespace ddprun {
namespace {

using boost::asio::ip::tcp;
using boost::asio::posix::stream_descriptor;

constexpr std::size_t kMaxSenders = 64;  // maximum number of inbox connections whose message has not arrived yet
constexpr std::chrono::milliseconds kSecondTry{20};
constexpr int kBacklog = 64;

struct UnixAddress {
  sockaddr_un name{};
  socklen_t size = 0;
};

UnixAddress abstract(std::uint16_t port, const std::string& role) {
  UnixAddress address;
  address.name.sun_family = AF_UNIX;
  const std::string name = "ddprun/" + std::to_string(::geteuid()) + "/" + std::to_string(port) + "/" + role;
  name.copy(address.name.sun_path + 1, sizeof address.name.sun_path - 1);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Descriptor unix_socket() {
  return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Returns a socket that listens at that abstract address; -1 if the address is in use.
int listen_at(const UnixAddress& address) {
  Descriptor socket = unix_socket();
  const bool listens = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) == 0 &&
                       ::listen(socket.get(), kBacklog) == 0;
  return listens ? socket.release() : -1;
}

// Returns true if the process at the other end belongs to this user (SO_PEERCRED). Both ends check this, because any user of
// this host can bind an abstract name.
bool is_this_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

// Returns a socket that is connected to that abstract address; -1 if no process of this user listens there.
int connect_to(const UnixAddress& address) {
  Descriptor socket = unix_socket();
  const bool connected = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) == 0;
  return connected && is_this_user(socket.get()) ? socket.release() : -1;
}

// Accepts the next pending connection from a process of this user; -1 if there is none.
int accept_from(int fd) {
  for (;;) {
    const int peer = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0 && errno == EINTR) continue;
    if (peer < 0 || is_this_user(peer)) return peer;
    ::close(peer);
  }
}

class SharedPort final : public Listener, public std::enable_shared_from_this<SharedPort> {
 public:
  SharedPort(boost::asio::io_context& io, Transport& transport, ListenOptions options,
             std::function<void(std::shared_ptr<Connection>)> on_member)
      : io_(io),
        transport_(transport),
        options_(std::move(options)),
        inbox_(io),
        holder_socket_(io),
        waiting_socket_(io),
        timer_(io) {
    options_.hand_over = [port = options_.port, own_job = std::move(options_.hand_over)](const ShortRunDigest& run, int fd,
                                                                                         std::string_view hello) {
      if (own_job && own_job(run, fd, hello)) return true;
      const Descriptor inbox(connect_to(abstract(port, to_hex(run))));
      return inbox.get() >= 0 && pass_descriptor(inbox.get(), fd, hello);
    };
    on_member_ = std::move(on_member);
  }

  void begin() {
    open_inbox();
    if (hold_by_binding()) return;
    if (!join_waiters()) {
      listener_ = transport_.listen(options_, on_member_);  // throws UsageError if another program uses the port
      return open_holder_socket();
    }
    ListenOptions waiter = options_;
    waiter.open = ListenOptions::Port::kNone;
    listener_ = transport_.listen(std::move(waiter), on_member_);
  }

  tcp::endpoint local() const override { return listener_->local(); }
  void close_port() override { listener_->close_port(); }
  Descriptor release_port() override { return listener_->release_port(); }
  void take_port(Descriptor port) override { listener_->take_port(std::move(port)); }
  void adopt(Descriptor connection, std::string_view hello) override { listener_->adopt(std::move(connection), hello); }
  std::size_t unauthenticated() const override { return listener_->unauthenticated(); }

  void close() {
    closed_ = true;
    timer_.cancel();
    boost::system::error_code ignored;
    inbox_.close(ignored);
    waiting_socket_.close(ignored);
    // This socket must close before the port is passed to the next agent, so that the next holder can open its own socket with
    // the same name.
    holder_socket_.close(ignored);
    const Descriptor port = listener_ ? listener_->release_port() : Descriptor();
    for (auto& waiter : waiters_) {
      if (port.get() < 0 || pass_descriptor(waiter.native_handle(), port.get(), {})) break;
    }
    waiters_.clear();
    while (!senders_.empty()) close_oldest_sender();
    listener_.reset();
  }

 private:
  void open_inbox() {
    const int fd = listen_at(abstract(options_.port, to_hex(transport_.run())));
    if (fd < 0) {
      throw UsageError("another agent of this job already listens on port " + std::to_string(options_.port) +
                       " of this machine: stop it, or give this job another --rdzv-id");
    }
    inbox_.assign(fd);
    accept_senders();
  }

  // Calls `act` when `socket` becomes readable, unless this object was closed before.
  void once_readable(stream_descriptor& socket, std::function<void()> act) {
    socket.async_wait(stream_descriptor::wait_read, [self = shared_from_this(), act = std::move(act)](const auto& error) {
      if (!error && !self->closed_) act();
    });
  }

  void accept_senders() {
    once_readable(inbox_, [this] {
      for (int peer = accept_from(inbox_.native_handle()); peer >= 0; peer = accept_from(inbox_.native_handle())) {
        receive_from(std::make_shared<stream_descriptor>(io_, peer));
        if (closed_) return;
      }
      accept_senders();
    });
  }

  // Waits for the message of `sender`, a process that has connected to the inbox. The sender connects and sends in two system
  // calls, so the message may arrive later than the connection.
  void receive_from(std::shared_ptr<stream_descriptor> sender) {
    if (senders_.size() == kMaxSenders) close_oldest_sender();
    senders_.push_back(sender);
    once_readable(*sender, [this, sender] {
      if (std::erase(senders_, sender) == 0) return;
      auto handed_over_socket = receive_passed_descriptor(sender->native_handle());
      if (handed_over_socket && handed_over_socket->descriptor.get() >= 0)
        listener_->adopt(std::move(handed_over_socket->descriptor), handed_over_socket->bytes);
    });
  }

  void close_oldest_sender() {
    boost::system::error_code ignored;
    senders_.front()->close(ignored);  // close() is necessary, because the read handler also owns a reference
    senders_.pop_front();
  }

  // Tries to bind the port. Returns true if this agent now listens there.
  bool hold_by_binding() {
    try {
      auto holder = transport_.listen(options_, on_member_);
      if (!listener_) {
        listener_ = std::move(holder);
      } else {
        listener_->take_port(holder->release_port());
      }
    } catch (const UsageError&) {
      return false;
    }
    open_holder_socket();
    return true;
  }

  // Opens the socket for waiting agents. A failure is ignored, because its only consequence is that other agents cannot wait
  // for the port.
  void open_holder_socket() {
    const int fd = listen_at(abstract(options_.port, "holder"));
    if (fd < 0) return;
    holder_socket_.assign(fd);
    accept_waiters();
  }

  void accept_waiters() {
    once_readable(holder_socket_, [this] {
      const int holder = holder_socket_.native_handle();
      for (int peer = accept_from(holder); peer >= 0; peer = accept_from(holder)) {
        waiters_.emplace_back(io_, peer);
        watch(std::prev(waiters_.end()));
      }
      accept_waiters();
    });
  }

  // Removes a waiting agent when it ends. Waiting agents send no data. So if the socket is readable, the agent has ended.
  void watch(std::list<stream_descriptor>::iterator waiter) {
    once_readable(*waiter, [this, waiter] { waiters_.erase(waiter); });
  }

  // Connects to the holder's socket for waiting agents. Returns false if no agent of this user holds the port.
  bool join_waiters() {
    const int fd = connect_to(abstract(options_.port, "holder"));
    if (fd < 0) return false;
    waiting_socket_ = stream_descriptor(io_, fd);
    once_readable(waiting_socket_, [this] { receive_port(); });
    return true;
  }

  // Called when the connection to the holder is readable: the holder has passed the port to this agent or to another agent, or
  // has died.
  void receive_port() {
    auto received = receive_passed_descriptor(waiting_socket_.native_handle());
    boost::system::error_code ignored;
    waiting_socket_.close(ignored);
    if (!received || received->descriptor.get() < 0) return try_again();
    listener_->take_port(std::move(received->descriptor));
    open_holder_socket();
  }

  void try_again() {
    if (hold_by_binding() || join_waiters()) return;
    timer_.expires_after(kSecondTry);  // try again soon, because the next holder has not opened its socket yet
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->closed_) self->try_again();
    });
  }

  boost::asio::io_context& io_;
  Transport& transport_;
  ListenOptions options_;
  std::function<void(std::shared_ptr<Connection>)> on_member_;
  std::shared_ptr<Listener> listener_;
  stream_descriptor inbox_;
  stream_descriptor holder_socket_;
  stream_descriptor waiting_socket_;
  std::list<stream_descriptor> waiters_;  // agents that wait for the port, in the order of arrival
  // inbox connections that were accepted but whose message has not arrived yet
  std::list<std::shared_ptr<stream_descriptor>> senders_;
  boost::asio::steady_timer timer_;
  bool closed_ = false;
};

}  // namespace

std::shared_ptr<Listener> listen_on_shared_port(boost::asio::io_context& io, Transport& transport, ListenOptions options,
                                                std::function<void(std::shared_ptr<Connection>)> on_member) {
  if (options.port == 0)
    return transport.listen(std::move(options), std::move(on_member));  // a port that the kernel has chosen is not shared
  const auto port = std::make_shared<SharedPort>(io, transport, std::move(options), std::move(on_member));
  std::shared_ptr<Listener> handle(port.get(), [port](Listener*) { port->close(); });
  port->begin();
  return handle;
}

}  // namespace ddprun
