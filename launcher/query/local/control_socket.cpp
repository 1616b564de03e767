// Implementation of control_socket.hpp. Each Listener accepts clients; the two listeners share the limit of clients.
#include "launcher/query/local/control_socket.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <nlohmann/json.hpp>

#include "common/system/descriptor.hpp"
#include "launcher/query/local/control_folder.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using boost::asio::local::stream_protocol;
using boost::system::error_code;

constexpr int kMaxClients = 16;
constexpr int kMaxPerPid = 64;
constexpr std::size_t kMaxBytes = 4096;
constexpr std::chrono::seconds kClientTimeout{5};
constexpr std::chrono::seconds kClusterTimeout{40};
constexpr std::chrono::milliseconds kStartDelay{100};  // time from the start of the job until the socket is created
constexpr std::chrono::milliseconds kRetryDelay{10};   // first retry interval; it doubles each time
constexpr std::chrono::milliseconds kMaxRetryDelay{1000};
constexpr std::chrono::milliseconds kNoDescriptorsPause{100};

bool is_peer_allowed(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

struct ControlSocket::Impl : std::enable_shared_from_this<ControlSocket::Impl> {
  struct Client {
    Client(stream_protocol::socket connected, boost::asio::io_context& io) : socket(std::move(connected)), timeout(io) {}
    stream_protocol::socket socket;
    boost::asio::steady_timer timeout;
    std::string request;
    std::string answer;
  };

  // A listening socket.
  struct Listener {
    explicit Listener(boost::asio::io_context& io) : acceptor(io), pause(io) {}
    stream_protocol::acceptor acceptor;
    boost::asio::steady_timer pause;
  };

  Impl(boost::asio::io_context& context, std::vector<fs::path> places, Service& owner)
      : io(context),
        folders(std::move(places)),
        service(owner),
        start(context, kStartDelay),
        in_folder(context),
        by_name(context) {}

  void schedule_listen() {
    start.async_wait([self = weak_from_this()](const error_code& error) {
      const auto impl = self.lock();
      if (impl && !error) impl->listen();
    });
  }

  void listen() {
    if (!by_name.acceptor.is_open()) listen_by_name();
    const auto found = std::ranges::find_if(folders, create_control_folder);
    if (found != folders.end()) return listen_in(*found);
    if (!by_name.acceptor.is_open()) retry();
  }

  void retry() {
    start.expires_after(retry_delay);
    retry_delay = std::min(2 * retry_delay, kMaxRetryDelay);
    schedule_listen();
  }

  // Listens at an abstract name, which needs no directory (control_folder.hpp).
  void listen_by_name() {
    const stream_protocol::endpoint endpoint('\0' + abstract_name_of(::getpid()));
    error_code error;
    by_name.acceptor.open(endpoint.protocol(), error);
    if (!error) ::fcntl(by_name.acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) by_name.acceptor.bind(endpoint, error);
    if (!error) by_name.acceptor.listen(kMaxClients, error);
    if (!error) return accept(by_name);
    by_name.acceptor.close(error);
  }

  // Returns an unused name in the directory. An agent in another container that shares the directory may have the same pid. If
  // no name is free, this agent has no socket in the directory.
  std::optional<fs::path> free_name(const fs::path& folder) {
    for (int number = 0; number < kMaxPerPid; ++number) {
      fs::path name = control_socket_of(folder, ::getpid(), number);
      if (is_free(name)) return name;
    }
    return std::nullopt;
  }

  // Returns true if no agent listens at the name. The probe is non-blocking: if the name belongs to a stopped agent with a full
  // listen queue, a blocking connect() would block this agent.
  static bool is_free(const fs::path& name) {
    const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const stream_protocol::endpoint endpoint(name.string());
    return probe.get() >= 0 && ::connect(probe.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 &&
           (errno == ECONNREFUSED || errno == ENOENT);
  }

  // The lock prevents two agents with the same pid from choosing the same name. If another agent holds the lock, this agent
  // retries later. A blocking flock() would block this agent if the holder is stopped.
  void listen_in(const fs::path& folder) {
    const Descriptor locked(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (locked.get() >= 0 && ::flock(locked.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return retry();
    }
    try {
      const auto name = free_name(folder);
      if (name && listen_at(*name)) return;
      if (!by_name.acceptor.is_open()) retry();     // no descriptors are left, so this agent has no socket yet
    } catch (const boost::system::system_error&) {  // the name is too long for a Unix socket
    }
  }

  bool listen_at(const fs::path& name) {
    stream_protocol::acceptor& acceptor = in_folder.acceptor;
    // A client that finds a socket without a listener assumes that its agent is dead, and removes the socket. The socket is
    // therefore bound to a temporary name, which clients do not use, and renamed after listen().
    const fs::path temporary = name.string() + "+";
    const stream_protocol::endpoint endpoint(temporary.string());
    error_code error;
    // files that an earlier process with this pid has left
    for (const fs::path& before : {name, temporary}) fs::remove(before, ignored);
    acceptor.open(endpoint.protocol(), error);
    if (!error) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) {
      file = temporary;
      acceptor.listen(kMaxClients, error);
    }
    if (error || ::rename(temporary.c_str(), name.c_str()) != 0) {
      acceptor.close(error);
      return false;
    }
    file = name;
    accept(in_folder);
    return true;
  }

  // `listener` must be a member of this object, since the callback uses it later.
  void accept(Listener& listener) {
    listener.acceptor.async_accept(
        [self = weak_from_this(), &listener](const error_code& error, stream_protocol::socket socket) {
          const auto impl = self.lock();
          if (!impl || error == boost::asio::error::operation_aborted) return;
          if (!error && impl->clients < kMaxClients && is_peer_allowed(socket.native_handle())) impl->serve(std::move(socket));
          if (!error || error == boost::asio::error::connection_aborted) return impl->accept(listener);
          impl->accept_later(listener);
        });
  }

  // Waits before the next accept(), because no descriptors or memory are left. Without this pause, accept() would fail again
  // immediately and keep the agent busy.
  void accept_later(Listener& listener) {
    listener.pause.expires_after(kNoDescriptorsPause);
    listener.pause.async_wait([self = weak_from_this(), &listener](const error_code& error) {
      const auto impl = self.lock();
      if (impl && !error) impl->accept(listener);
    });
  }

  void serve(stream_protocol::socket socket) {
    ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    ++clients;
    const std::shared_ptr<Client> client(new Client(std::move(socket), io), [self = weak_from_this()](Client* gone) {
      delete gone;
      if (const auto impl = self.lock()) --impl->clients;
    });
    watch(client, kClientTimeout);
    boost::asio::async_read_until(client->socket, boost::asio::dynamic_buffer(client->request, kMaxBytes), '\n',
                                  [self = weak_from_this(), client](const error_code& error, std::size_t length) {
                                    const auto impl = self.lock();
                                    if (impl && !error) impl->answer(client, client->request.substr(0, length - 1));
                                  });
  }

  // Closes the connection if the client has not finished after `timeout`.
  static void watch(const std::shared_ptr<Client>& client, std::chrono::seconds timeout) {
    client->timeout.expires_after(timeout);
    client->timeout.async_wait([weak = std::weak_ptr(client)](const error_code& error) {
      error_code closed;
      if (const auto slow = weak.lock(); slow && !error) slow->socket.close(closed);
    });
  }

  void answer(const std::shared_ptr<Client>& client, const std::string& request) {
    if (request.starts_with(kNodesRequest) && service.has_nodes()) {
      watch(client, kClusterTimeout);
      return service.query_nodes(request.substr(std::strlen(kNodesRequest)),
                                 [self = weak_from_this(), client](std::string text) {
                                   if (const auto impl = self.lock()) impl->send(client, {}, std::move(text));
                                 });
    }
    if (request == kGpusRequest) {
      return service.probe_gpus([self = weak_from_this(), client](const nlohmann::json& gpus) {
        const auto impl = self.lock();
        if (impl) impl->send(client, {}, gpus.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      });
    }
    if (request == kStatusRequest) return send(client, request, service.status(std::string::npos));
    if (request == kReportRequest) return send(client, request, service.report());
    const bool stops = request == kStopRequest || request == kStopNowRequest;
    send(client, request, stops ? R"({"stops":true})" : R"({"error":"unknown request"})");
  }

  void send(const std::shared_ptr<Client>& client, const std::string& request, std::string text) {
    client->answer = std::move(text) + "\n";
    boost::asio::async_write(client->socket, boost::asio::buffer(client->answer),
                             [self = weak_from_this(), client, request](const error_code&, std::size_t) {
                               const auto impl = self.lock();
                               if (!impl || (request != kStopRequest && request != kStopNowRequest)) return;
                               impl->service.stop(request == kStopNowRequest);
                             });
  }

  boost::asio::io_context& io;
  std::vector<fs::path> folders;
  Service& service;
  boost::asio::steady_timer start;
  std::chrono::milliseconds retry_delay = kRetryDelay;
  Listener in_folder, by_name;
  fs::path file;
  std::error_code ignored;
  int clients = 0;
};

ControlSocket::ControlSocket(boost::asio::io_context& io, std::vector<fs::path> folders, Service& service)
    : impl_(std::make_shared<Impl>(io, std::move(folders), service)) {
  impl_->schedule_listen();
}

ControlSocket::~ControlSocket() {
  if (!impl_->file.empty()) ::unlink(impl_->file.c_str());
}

}  // namespace ddprun
