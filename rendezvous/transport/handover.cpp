// Implementation of handover.hpp. It uses two abstract Unix sockets. Each job has an inbox ("ddprun/UID/PORT/RUN"), where it
// gets connections that arrived at the holder of the port. The holder has a waiting room ("ddprun/UID/PORT/holder") for guests.
// A guest stays connected there until the holder passes the port on. If the stream ends, the holder has died and the port is
// free.
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

using boost::asio::posix::stream_descriptor;

constexpr std::size_t kMostSenders = 64;  // connections to the inbox that wait for a message
constexpr std::chrono::milliseconds kSecondTry{20};
constexpr int kBacklog = 64;

struct UnixAddress {
  sockaddr_un name{};
  socklen_t size = 0;
};

UnixAddress abstract(std::uint16_t port, const std::string& who) {
  UnixAddress address;
  address.name.sun_family = AF_UNIX;
  const std::string name = "ddprun/" + std::to_string(::geteuid()) + "/" + std::to_string(port) + "/" + who;
  name.copy(address.name.sun_path + 1, sizeof address.name.sun_path - 1);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

int unix_socket() {
  return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// Returns -1 if the name is taken.
int listen_at(const UnixAddress& address) {
  const int fd = unix_socket();
  if (fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&address.name), address.size) == 0 &&
      ::listen(fd, kBacklog) == 0) {
    return fd;
  }
  if (fd >= 0) ::close(fd);
  return -1;
}

// Any user of this host can bind an abstract name, so both ends check the user of the other process (SO_PEERCRED).
bool is_this_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

// Returns -1 if no process of this user listens there.
int connect_to(const UnixAddress& address) {
  const int fd = unix_socket();
  if (fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address.name), address.size) == 0 && is_this_user(fd))
    return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

// Returns -1 if no process of this user waits.
int accept_from(int fd) {
  for (;;) {
    const int peer = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0 && errno == EINTR) continue;
    if (peer < 0 || is_this_user(peer)) return peer;
    ::close(peer);
  }
}

class SharedPort final : public std::enable_shared_from_this<SharedPort> {
 public:
  SharedPort(boost::asio::io_context& io, Transport& transport, ListenOptions options,
             std::function<void(std::shared_ptr<Connection>)> on_member)
      : io_(io), transport_(transport), options_(std::move(options)), inbox_(io), room_(io), seat_(io), timer_(io) {
    options_.hand_over = [port = options_.port, own = std::move(options_.hand_over)](const ShortRunDigest& run, int fd,
                                                                                     std::string_view hello) {
      if (own && own(run, fd, hello)) return true;
      const int inbox = connect_to(abstract(port, to_hex(run)));
      if (inbox < 0) return false;
      const bool sent = pass_descriptor(inbox, fd, hello);
      ::close(inbox);
      return sent;
    };
    on_member_ = std::move(on_member);
  }

  void begin() {
    open_inbox();
    if (hold_by_binding()) return;
    if (!sit_down()) {
      listener_ = transport_.listen(options_, on_member_);  // throws UsageError if the port is not available
      return open_room();
    }
    ListenOptions guest = options_;
    guest.open = ListenOptions::Port::kNone;
    listener_ = transport_.listen(std::move(guest), on_member_);
  }

  Listener& listener() { return *listener_; }

  void close() {
    closed_ = true;
    timer_.cancel();
    boost::system::error_code ignored;
    inbox_.close(ignored);
    seat_.close(ignored);
    // The room closes first, so that the next holder can open one.
    room_.close(ignored);
    const int port = listener_ ? listener_->release_port() : -1;
    if (port >= 0) {
      for (auto& guest : guests_) {
        if (pass_descriptor(guest.native_handle(), port, {})) break;
      }
      ::close(port);
    }
    guests_.clear();
    while (!senders_.empty()) close_oldest_sender();
    listener_.reset();
  }

 private:
  void open_inbox() {
    const int fd = listen_at(abstract(options_.port, to_hex(transport_.run())));
    if (fd < 0) {
      throw UsageError("another agent of this job listens on port " + std::to_string(options_.port) +
                       " of this machine already: end it, or give this job another --rdzv-id");
    }
    inbox_.assign(fd);
    wait_for_mail();
  }

  void wait_for_mail() {
    inbox_.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->closed_) return;
      for (int peer = accept_from(self->inbox_.native_handle()); peer >= 0; peer = accept_from(self->inbox_.native_handle())) {
        self->receive_from(std::make_shared<stream_descriptor>(self->io_, peer));
        if (self->closed_) return;
      }
      self->wait_for_mail();
    });
  }

  // The holder connects and sends in two system calls. So its message may arrive after this agent has accepted the connection.
  void receive_from(std::shared_ptr<stream_descriptor> sender) {
    if (senders_.size() == kMostSenders) close_oldest_sender();
    senders_.push_back(sender);
    sender->async_wait(stream_descriptor::wait_read,
                       [self = shared_from_this(), sender](const boost::system::error_code& error) {
                         if (error || self->closed_ || std::erase(self->senders_, sender) == 0) return;
                         auto mail = receive_passed_descriptor(sender->native_handle());
                         if (mail && mail->descriptor.get() >= 0)
                           self->listener_->adopt(mail->descriptor.release(), mail->bytes);
                       });
  }

  void close_oldest_sender() {
    boost::system::error_code ignored;
    senders_.front()->close(ignored);  // its handler also holds a reference
    senders_.pop_front();
  }

  // Returns true if this agent could bind the port.
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
    open_room();
    return true;
  }

  // Failure is harmless: without a room, other agents just cannot wait here.
  void open_room() {
    const int fd = listen_at(abstract(options_.port, "holder"));
    if (fd < 0) return;
    room_.assign(fd);
    wait_for_guests();
  }

  void wait_for_guests() {
    room_.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->closed_) return;
      for (int peer = accept_from(self->room_.native_handle()); peer >= 0; peer = accept_from(self->room_.native_handle())) {
        self->guests_.emplace_back(self->io_, peer);
        self->watch(std::prev(self->guests_.end()));
      }
      self->wait_for_guests();
    });
  }

  // Guests send nothing, so a readable socket means that the guest has ended.
  void watch(std::list<stream_descriptor>::iterator guest) {
    guest->async_wait(stream_descriptor::wait_read, [self = shared_from_this(), guest](const boost::system::error_code& error) {
      if (!error && !self->closed_) self->guests_.erase(guest);
    });
  }

  // Returns true if there is a holder of this user, in whose room this agent now waits.
  bool sit_down() {
    const int fd = connect_to(abstract(options_.port, "holder"));
    if (fd < 0) return false;
    seat_ = stream_descriptor(io_, fd);
    seat_.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->closed_) self->called();
    });
    return true;
  }

  // The holder has passed the port on, to this agent or another, or has died.
  void called() {
    auto received = receive_passed_descriptor(seat_.native_handle());
    boost::system::error_code ignored;
    seat_.close(ignored);
    if (!received || received->descriptor.get() < 0) return try_again();
    listener_->take_port(received->descriptor.release());
    open_room();
  }

  void try_again() {
    if (hold_by_binding() || sit_down()) return;
    timer_.expires_after(kSecondTry);  // the next holder has not opened its room yet
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->closed_) self->try_again();
    });
  }

  boost::asio::io_context& io_;
  Transport& transport_;
  ListenOptions options_;
  std::function<void(std::shared_ptr<Connection>)> on_member_;
  std::unique_ptr<Listener> listener_;
  stream_descriptor inbox_;
  stream_descriptor room_;
  stream_descriptor seat_;
  std::list<stream_descriptor> guests_;                    // in the order of arrival
  std::list<std::shared_ptr<stream_descriptor>> senders_;  // accepted by the inbox, without a message yet
  boost::asio::steady_timer timer_;
  bool closed_ = false;
};

class SharedListener final : public Listener {
 public:
  explicit SharedListener(std::shared_ptr<SharedPort> port) : port_(std::move(port)) {}
  SharedListener(const SharedListener&) = delete;
  SharedListener& operator=(const SharedListener&) = delete;
  ~SharedListener() override { port_->close(); }

  boost::asio::ip::tcp::endpoint local() const override { return port_->listener().local(); }
  void close_port() override { port_->listener().close_port(); }
  int release_port() override { return port_->listener().release_port(); }
  void take_port(int fd) override { port_->listener().take_port(fd); }
  void adopt(int fd, std::string_view hello) override { port_->listener().adopt(fd, hello); }
  std::size_t unauthenticated() const override { return port_->listener().unauthenticated(); }

 private:
  std::shared_ptr<SharedPort> port_;
};

}  // namespace

std::unique_ptr<Listener> listen_on_shared_port(boost::asio::io_context& io, Transport& transport, ListenOptions options,
                                                std::function<void(std::shared_ptr<Connection>)> on_member) {
  if (options.port == 0)
    return transport.listen(std::move(options), std::move(on_member));  // a port that the kernel chooses is not shared
  auto port = std::make_shared<SharedPort>(io, transport, std::move(options), std::move(on_member));
  try {
    port->begin();
  } catch (...) {
    port->close();
    throw;
  }
  return std::make_unique<SharedListener>(std::move(port));
}

}  // namespace ddprun
